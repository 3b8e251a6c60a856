"""FITS files whose images are compressed plane by plane, as the FITS standard has it (4.0, section 10: tiled images).

Integers are compressed without loss, and so are floating-point numbers by gzip (GZIP_2: all first bytes, all second
bytes, ...). With `rice` a cube's flux is rounded: to a step of the noise in a plane (fpack's -q; White et al. 2012,
arXiv:1201.1336), with dithering that leaves zeros as they are. Variances are never rounded.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from rubix_like.config.file_layouts import Packing
from rubix_like.cube.cube_parts import ShardedCube, check_complete
from rubix_like.cube.files.fits_checksum import reserve_sums, sum_of_words, with_sums
from rubix_like.cube.files.fits_images import Member, VoxelImage, conforming, encoded
from rubix_like.runtime.files.fits_opening import FITS_BLOCK

_DITHER_SEED = 1
_END = b"END".ljust(80)


def write_compressed(members: Sequence[Member], cube: ShardedCube, path: Path, packing: Packing) -> None:
    """Write the members to the new file `path`, one image after the other in memory; `cube` has all its parts.

    Raises OSError, and ValueError where the parts are not the whole cube.
    """
    check_complete(cube.ranges, cube.shape[2])
    conforming(members)
    with path.open("wb") as file:
        for member in members:
            file.write(_compressed(member, cube, packing) if isinstance(member, VoxelImage) else encoded(member))


def _compressed(image: VoxelImage, cube: ShardedCube, packing: Packing) -> bytes:
    """The bytes of a compressed image with its checksums."""
    values = np.empty(image.shape, image.dtype)
    for block in cube.blocks():
        values[block.bins, block.rows] = image.values(block).transpose(2, 0, 1)
    _, n_y, n_x = image.shape
    hdu = fits.CompImageHDU(values, image.hdu.header, tile_shape=(1, n_y, n_x), **_algorithm(image, packing))
    stream = BytesIO()
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(stream, output_verify="exception")
    content = memoryview(stream.getbuffer())[FITS_BLOCK:]
    end = -(-(bytes(content[: 10 * FITS_BLOCK]).index(_END) + len(_END)) // FITS_BLOCK) * FITS_BLOCK
    header = fits.Header.fromstring(bytes(content[:end]))
    reserve_sums(header)
    return with_sums(header.tostring().encode("ascii"), sum_of_words(content[end:])) + content[end:]


def _algorithm(image: VoxelImage, packing: Packing) -> dict[str, Any]:
    """How an image is compressed, in astropy's words."""
    if packing.kind == "rice" and image.dtype.kind != "f":
        return {"compression_type": "RICE_1"}
    if packing.kind == "rice" and image.is_rough:
        method = {"quantize_method": fits.hdu.compressed.SUBTRACTIVE_DITHER_2, "dither_seed": _DITHER_SEED}
        return {"compression_type": "RICE_1", "quantize_level": packing.quantize, **method}
    return {"compression_type": "GZIP_2", "quantize_level": 0.0}
