"""FITS files: images written block by block (also by several processes into one file), gzipped or tile-compressed, and
their checksums made and verified.

In FITS, wavelength is the slowest axis of a cube: some bins of it are a contiguous range of bytes of an image. What
is written is, byte for byte, what astropy writes of the same HDUs with whole images, and checksums.
"""

import errno
import gzip
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from astropy.io import fits
from numpy import ndarray

from rubix_like.config.file_layouts import UNPACKED, Packing
from rubix_like.cube.cube_parts import Block, ShardedCube, check_complete
from rubix_like.runtime.files.fits_opening import FITS_BLOCK
from rubix_like.runtime.files.outputs import moment_of_writing
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

_ONES = 0xFFFFFFFF
_CARD_BYTES = 80
_READ_BYTES = 1 << 24
_COMMENT = "FITS standard 4.0, appendix J"
_EMPTY = {"CHECKSUM": "0" * 16, "DATASUM": "0"}
_PUNCTUATION = (*range(0x3A, 0x41), *range(0x5B, 0x61))


def sum_of_words(content: Any, offset: int = 0) -> int:
    """Ones'-complement sum of the 32-bit words of a buffer, padded with zeros; `offset`: bytes of the data before
    it."""
    values = np.frombuffer(content, np.uint8)
    before = offset % 4
    after = -(before + len(values)) % 4
    values = np.pad(values, (before, after)) if before or after else values
    return added([values.view(">u4").sum(dtype=np.uint64).item()])


def added(sums: Iterable[int]) -> int:
    """Sums of words, or of pieces, added in ones' complement."""
    total = sum(sums)
    while total > _ONES:
        total = (total & _ONES) + (total >> 32)
    return total


def reserve_sums(header: fits.Header) -> None:
    """Put both cards into a header, without their values; they never need more room."""
    for keyword, value in _EMPTY.items():
        header[keyword] = (value, _COMMENT)


def with_sums(header: bytes, data_sum: int) -> bytes:
    """A header in which both cards were reserved, as it stands in a file, with the sums of it and of its data."""
    known = header.replace(_card("DATASUM", _EMPTY["DATASUM"]), _card("DATASUM", str(data_sum)))
    total = added([sum_of_words(known), data_sum])
    return known.replace(_card("CHECKSUM", _EMPTY["CHECKSUM"]), _card("CHECKSUM", encoded_sum(_ONES - total)))


def encoded_sum(value: int) -> str:
    """A sum as 16 letters and digits that have the same sum, where they stand in a card."""
    letters = [0] * 16
    for number, byte in enumerate(value.to_bytes(4, "big")):
        four = [byte // 4 + ord("0")] * 4
        four[0] += byte % 4
        for pair in (slice(0, 2), slice(2, 4)):  # letters or digits of the same sum
            while set(four[pair]) & set(_PUNCTUATION):
                four[pair] = four[pair][0] + 1, four[pair][1] - 1
        letters[number::4] = four
    return bytes([letters[-1], *letters[:-1]]).decode("ascii")


def checksum_faults(hdus: Any) -> tuple[str, ...]:
    """Sentences on the HDUs of an opened file that were changed or damaged, by their checksums, where they have any."""
    found = {f"HDU {number} ({hdu.name or 'without a name'})": _fault(hdu) for number, hdu in enumerate(hdus)}
    return tuple(f"{place}: {fault}" for place, fault in found.items() if fault)


def _fault(hdu: Any) -> str:
    place = hdu.fileinfo()
    if place is None:
        return ""
    stream = place["file"]
    stream.seek(place["hdrLoc"])
    header = stream.read(place["datLoc"] - place["hdrLoc"])
    checksum, stated = (_stated(header, keyword) for keyword in ("CHECKSUM", "DATASUM"))
    if not (checksum or stated):
        return ""
    data_sum, left = 0, place["datSpan"]  # what is missing at the end counts as zeros
    while left > 0 and (content := stream.read(min(left, _READ_BYTES))):
        data_sum, left = added([data_sum, sum_of_words(content)]), left - len(content)
    if stated.isdecimal() and int(stated) % _ONES != data_sum % _ONES:
        return f"its data were changed or damaged since they were written (DATASUM {stated}, now {data_sum})"
    if checksum and added([sum_of_words(header), data_sum]) % _ONES:
        what = "its header was" if stated.isdecimal() else "it was"
        return f"{what} changed or damaged since it was written (CHECKSUM)"
    return ""


def _stated(header: bytes, keyword: str) -> str:
    """The value of a card of text in a header as it stands in a file; empty where there is none."""
    start = keyword.ljust(8).encode() + b"= '"
    for place in range(0, len(header), _CARD_BYTES):
        if header.startswith(start, place):
            return header[place + len(start) : place + _CARD_BYTES].split(b"'")[0].decode("ascii", "replace").strip()
    return ""


def _card(keyword: str, value: str) -> bytes:
    return fits.Card(keyword, value, _COMMENT).image.encode("ascii")


_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@dataclass(frozen=True, eq=False)
class VoxelImage:
    """An image of `shape` (wave, y, x) and `dtype` in a file; `hdu` has the header (and no voxels).

    `values`: of a block of the cube, its (y, x, bin) values; `is_rough`: whether a file may hold them rounded.
    """

    hdu: fits.ImageHDU | fits.PrimaryHDU
    shape: tuple[int, int, int]
    dtype: np.dtype
    values: Callable[[Block], ndarray]
    is_rough: bool = False

    @property
    def n_bytes(self) -> int:
        """Bytes of its data, without padding."""
        return math.prod(self.shape) * self.dtype.itemsize

    def stored(self, block: Block) -> ndarray:
        """The values of a block as they lie in a file: (bin, y, x), big-endian."""
        values = self.values(block)
        n_y, n_x, n_bins = values.shape
        stored = np.empty((n_bins, n_y, n_x), self.dtype)
        for row in range(n_y):  # row by row, a transposition stays in the processor's cache
            stored[:, row] = values[row].T
        is_swapped = sys.byteorder == "little" and self.dtype.itemsize > 1
        return stored.byteswap(inplace=True) if is_swapped else stored

    def sum_of(self, stored: ndarray, block: Block) -> int:
        """The part of the data's checksum that a block adds, from its values as they are stored."""
        return sum_of_words(stored.reshape(-1).view(np.uint8), self.offset(block))

    def offset(self, block: Block) -> int:
        """Bytes of the data before those of a block."""
        _, n_y, n_x = self.shape
        return (block.bins.start * n_y + block.rows.start) * n_x * self.dtype.itemsize


Member = fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU | VoxelImage
"""What a file is made of: small HDUs as they are, and images of voxels."""


def voxel_image(
    cube: ShardedCube,
    dtype: type | np.dtype,
    header: fits.Header,
    values: Callable[[Block], ndarray],
    *,
    name: str | None = None,
    is_rough: bool = False,
) -> VoxelImage:
    """An image extension called `name` (None: the primary HDU) of the shape of `cube`."""
    n_y, n_x, n_wave = cube.shape
    holder = np.broadcast_to(np.zeros((), dtype), (n_wave, n_y, n_x))
    hdu = fits.PrimaryHDU(holder, header) if name is None else fits.ImageHDU(holder, header, name=name)
    return VoxelImage(hdu, holder.shape, holder.dtype, values, is_rough)


class PlacedImage(NamedTuple):
    """An image whose data begin at a byte of the file; its `header`, right before them, has room for the checksums,
    which are not known yet."""

    start: int
    header: bytes
    image: VoxelImage


@dataclass(frozen=True, eq=False)
class FilePlan:
    """A file without its voxels: small HDUs and headers by their first bytes, the images, and its size."""

    fixed: dict[int, bytes]
    images: tuple[PlacedImage, ...]
    size: int

    def headers(self, data_sums: Sequence[int]) -> dict[int, bytes]:
        """The images' headers by their first bytes, with the checksums of images whose data have these sums."""
        pairs = zip(self.images, data_sums, strict=True)
        return {placed.start - len(placed.header): with_sums(placed.header, total) for placed, total in pairs}


def plan_file(members: Sequence[Member]) -> FilePlan:
    """The places of everything in a file; raises astropy's VerifyError for HDUs that do not conform to the standard."""
    make_conforming(members)
    fixed, images, size = dict[int, bytes](), list[PlacedImage](), 0
    for member in members:
        if isinstance(member, VoxelImage):
            reserve_sums(member.hdu.header)
            fixed[size] = header = member.hdu.header.tostring().encode("ascii")
            images.append(PlacedImage(size + len(header), header, member))
            size += len(header) + _padded(member.n_bytes)
        else:
            fixed[size] = encoded(member)
            size += len(fixed[size])
    return FilePlan(fixed, tuple(images), size)


def make_conforming(members: Sequence[Member]) -> None:
    """Let the first HDU say that others follow; raises astropy's VerifyError where one breaks the standard."""
    hdus = fits.HDUList([member.hdu if isinstance(member, VoxelImage) else member for member in members])
    hdus.verify("exception")
    hdus.update_extend()


def write_fits(plan: FilePlan, cube: ShardedCube, path: Path, team: AbstractProcessGroup) -> None:
    """Write a planned file to the new file `path`: each process of the team its parts.

    Process 0 makes the file with its full size first, so that a full disk is found at once. A file that ends in .gz is
    for a single process. Raises OSError, and ValueError where the parts are not the whole cube.
    """
    if path.suffix.lower() == ".gz":
        team.exchange(lambda: _write_gzipped(plan, cube, path))
        return

    def begin() -> tuple[list[int], list[tuple[int, int]]]:
        if team.number == 0:
            _reserve(plan, path)
        return [placed.start for placed in plan.images], list(cube.ranges)

    answers = team.exchange(begin)
    check_complete([(first, last) for _, ranges in answers for first, last in ranges], cube.shape[2])
    images = [(start, placed.image) for start, placed in zip(answers[0][0], plan.images, strict=True)]
    sums = team.exchange(lambda: _fill(images, cube, path, is_shared=team.size > 1))
    totals = [added(parts) for parts in zip(*sums, strict=True)]

    def finish() -> None:
        with path.open("r+b") as file:
            for offset, header in plan.headers(totals).items():
                file.seek(offset)
                file.write(header)

    team.exchange(finish if team.number == 0 else lambda: None)


def _reserve(plan: FilePlan, path: Path) -> None:
    """Make a file of the full size, where the system can with room on the disk, with all that is not voxels."""
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, plan.size)
        except AttributeError:  # not on this system
            os.ftruncate(file.fileno(), plan.size)
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
            os.ftruncate(file.fileno(), plan.size)
        for offset, content in plan.fixed.items():
            file.seek(offset)
            file.write(content)


def _fill(images: Sequence[tuple[int, VoxelImage]], cube: ShardedCube, path: Path, *, is_shared: bool) -> list[int]:
    """Write the voxels of this process, of a shared file until they are on the disk; their checksums by image."""
    sums = [0] * len(images)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        for block in cube.blocks():
            for number, (offset, image) in enumerate(images):
                stored = image.stored(block)
                _write_at(descriptor, stored, offset + image.offset(block))
                sums[number] = added([sums[number], image.sum_of(stored, block)])
        if is_shared:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return sums


def _write_at(descriptor: int, values: ndarray, offset: int) -> None:
    """All bytes of `values` from `offset` on (a system may write fewer at once)."""
    rest = values.reshape(-1).view(np.uint8).data
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def _write_gzipped(plan: FilePlan, cube: ShardedCube, path: Path) -> None:
    """Write the file from its beginning to its end, gzipped; the checksums, which stand first, are made before."""
    check_complete(cube.ranges, cube.shape[2])
    images = {placed.start: placed.image for placed in plan.images}
    sums = [added(image.sum_of(image.stored(block), block) for block in cube.blocks()) for image in images.values()]

    def data_at(place: int) -> Iterator[Any]:
        if place in images:
            yield from (images[place].stored(block).data for block in cube.blocks())
            yield bytes(_padded(images[place].n_bytes) - images[place].n_bytes)

    with gzipped(path) as stream:
        for offset, content in (plan.fixed | plan.headers(sums)).items():
            stream.write(content)
            stream.writelines(data_at(offset + len(content)))


@contextmanager
def gzipped(path: Path) -> Iterator[gzip.GzipFile]:
    """A new file to be compressed, whose bytes depend on what is written and on the moment of writing alone."""
    moment = moment_of_writing().timestamp()
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=moment) as stream:
        yield stream


def encoded(hdu: fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU) -> bytes:
    """The bytes of a small HDU with its checksums."""
    reserve_sums(hdu.header)
    stream = BytesIO()
    before = [] if isinstance(hdu, fits.PrimaryHDU) else [fits.PrimaryHDU()]
    fits.HDUList([*before, hdu]).writeto(stream, output_verify="exception")
    content = stream.getvalue()[FITS_BLOCK * len(before) :]
    end = len(hdu.header.tostring())
    return with_sums(content[:end], sum_of_words(content[end:])) + content[end:]


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // FITS_BLOCK) * FITS_BLOCK


_DITHER_SEED = 1
_END = b"END".ljust(80)


def write_tile_compressed(members: Sequence[Member], cube: ShardedCube, path: Path, packing: Packing) -> None:
    """Write the members to the new file `path`, one image after the other in memory; `cube` has all its parts.

    Raises OSError, and ValueError where the parts are not the whole cube.
    """
    check_complete(cube.ranges, cube.shape[2])
    make_conforming(members)
    with path.open("wb") as file:
        for member in members:
            file.write(_compressed(member, cube, packing) if isinstance(member, VoxelImage) else encoded(member))


def _compressed(image: VoxelImage, cube: ShardedCube, packing: Packing) -> bytes:
    values = np.empty(image.shape, image.dtype)
    for block in cube.blocks():
        values[block.bins, block.rows] = image.values(block).transpose(2, 0, 1)
    options: dict[str, Any] = {"compression_type": "GZIP_2", "quantize_level": 0.0}
    if packing.kind == "rice" and image.dtype.kind != "f":
        options = {"compression_type": "RICE_1"}
    elif packing.kind == "rice" and image.is_rough:
        method = {"quantize_method": fits.hdu.compressed.SUBTRACTIVE_DITHER_2, "dither_seed": _DITHER_SEED}
        options = {"compression_type": "RICE_1", "quantize_level": packing.quantize, **method}
    hdu = fits.CompImageHDU(values, image.hdu.header, tile_shape=(1, *image.shape[1:]), **options)
    stream = BytesIO()
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(stream, output_verify="exception")
    content = memoryview(stream.getbuffer())[FITS_BLOCK:]
    end = -(-(bytes(content[: 10 * FITS_BLOCK]).index(_END) + len(_END)) // FITS_BLOCK) * FITS_BLOCK
    header = fits.Header.fromstring(bytes(content[:end]))
    reserve_sums(header)
    return with_sums(header.tostring().encode("ascii"), sum_of_words(content[end:])) + content[end:]


def write_members(
    members: Callable[[ShardedCube], list[Member]],
    cube: ShardedCube,
    path: Path,
    team: AbstractProcessGroup,
    packing: Packing = UNPACKED,
) -> None:
    """Write a cube as a FITS file of the members that are made of it."""
    if packing.is_none:
        write_fits(plan_file(members(cube)), cube, path, team)
    else:
        team.exchange(lambda: write_tile_compressed(members(cube), cube, path, packing))
