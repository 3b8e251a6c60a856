"""The layouts of a cube's file: the cubes that each can hold, its file names, and its size."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from rubix_like.arguments import expect_fields
from rubix_like.config.messages import refusal
from rubix_like.config.plug_ins import FILE_LAYOUTS, member_of
from rubix_like.config.settings import WithSchema
from rubix_like.errors import ConfigError, suggest

HEADER_BYTES: int = 200_000
"""More than all headers and tables of a file, except those with a row per bin."""

Compression = Literal["none", "gzip", "rice"]
"""What `output.compression` can be."""

TOGETHER: str = ".fits"
"""End of the name of a file that several processes can write together."""

BYTES_PER_BIN: int = 64
"""More than all vectors with one element per bin."""


@dataclass(frozen=True)
class FileFormat:
    """How a cube is put into a file, and which cubes can be.

    `write(cube, path, team)` writes a cube in parts, together with the other processes of the team.
    `images`, `noise_images`: values per voxel that the file holds beside the mask, and those more with a variance; 4
    bytes each. `masks`: those of the mask, `mask_bytes` each. `keeps_all`: the file also holds the noiseless flux, and
    values of 8 bytes for a cube in float64. `compressions`: what `output.compression` may be beside `none`; then
    `write` is called with a `Packing` as the fourth argument. `package`: an optional package that it needs.
    `needs_fibres`: whether it holds the covariance of a cube of fibres; `keeps_fibres`: whether it holds their spectra.
    """

    write: Callable[..., None]
    suffixes: tuple[str, ...]
    images: int
    noise_images: int = 0
    masks: int = 1
    keeps_all: bool = False
    media: tuple[str, ...] = ("air", "vacuum")
    samplings: tuple[str, ...] = ("linear", "log")
    needs_variance: bool = False
    mask_bytes: int = 4
    compressions: tuple[str, ...] = ()
    package: str | None = None
    needs_fibres: bool = False
    keeps_fibres: bool = False

    def __post_init__(self) -> None:
        expect_fields(self)


@dataclass(frozen=True)
class Packing:
    """How a file is compressed: `kind` is none, gzip or rice; `quantize` rounds fluxes to the noise divided by it."""

    kind: str = "none"
    quantize: int | float | None = None

    def __post_init__(self) -> None:
        known = get_args(Compression)
        if self.kind not in known:
            raise ConfigError(f"output.compression: expected one of {', '.join(known)}, got '{self.kind}'")
        if (self.kind == "rice") != (self.quantize is not None):
            raise ConfigError(
                f"output.quantize: expected a number with compression 'rice', which rounds fluxes, and none else, "
                f"got {self.quantize} with '{self.kind}'; write e.g. output: {{compression: rice, quantize: 16}} for a "
                f"name in .fits, or compression: gzip without quantize, which loses nothing"
            )
        if self.quantize is not None and not 0 < self.quantize < math.inf:
            raise ConfigError(f"output.quantize: expected a number > 0, got {self.quantize}")

    @property
    def is_none(self) -> bool:
        """Whether nothing is compressed."""
        return self.kind == "none"


UNPACKED = Packing()
"""The default: nothing is compressed but what a name in .gz says."""


@dataclass(frozen=True)
class FileLayout:
    """A layout of `output.layout`: its formats, chosen by the end of the file's name."""

    formats: tuple[FileFormat, ...]


LayoutName = Annotated[
    str, member_of(FILE_LAYOUTS), WithSchema(lambda text: {**text, "enum": list(FILE_LAYOUTS.names())})
]
"""The name of a registered layout, as a setting."""


def find_format(path: Path, layout: str, place: str = "output.path") -> FileFormat:
    """The format of `layout` for the ending of `path`; raises ConfigError that names `place` if there is none."""
    if layout not in FILE_LAYOUTS:
        raise ConfigError(f"output.layout: unknown layout '{layout}'{suggest(layout, FILE_LAYOUTS.names())}")
    formats: tuple[FileFormat, ...] = FILE_LAYOUTS.find(layout).formats
    for candidate in formats:
        if path.name.lower().endswith(candidate.suffixes):
            return candidate
    if removed := refusal("output.path", path):
        raise ConfigError(f"{place}: {removed}")
    *others, last = [suffix for candidate in formats for suffix in candidate.suffixes]
    endings = f"{', '.join(others)} or {last}" if others else last
    if path.is_dir():
        came, name = f"the folder '{path}'", path / "cube"
    else:
        came, name = f"'{path}'", path.with_name(Path(path.stem).stem or "cube")
    raise ConfigError(
        f"{place}: expected a path that ends in {endings} (layout '{layout}'), got {came}; write e.g. '{name}.fits'"
    )


def check_layout(
    chosen: FileFormat, layout: str, *, noise: bool, medium: str, sampling: str, fibres: bool = False
) -> None:
    """Raise ConfigError where the layout cannot hold such a cube; `fibres`: whether it was made of their spectra."""
    if chosen.needs_fibres and not fibres:
        raise ConfigError(
            f"output.layout: '{layout}' keeps the covariance of a cube of fibres, but this one was not made of any, or "
            f"of several cubes; set instrument.fibres (and observation.mosaic: false), or choose layout 'default'"
        )
    if chosen.needs_variance and not noise:
        raise ConfigError(
            f"output.layout: '{layout}' needs a variance, but the cube has none; give the run a noise section "
            f"(e.g. noise: {{signal_to_noise: 50}})"
        )
    for what, value, allowed in (("medium", medium, chosen.media), ("sampling", sampling, chosen.samplings)):
        if value not in allowed:
            raise ConfigError(
                f"output.layout: '{layout}' expects wavelengths with {what} {' or '.join(allowed)}, got {value}; set "
                f"instrument.wavelength.{what}: {allowed[0]}, or choose layout 'default'"
            )


def check_packing(chosen: FileFormat, path: Path, packing: Packing) -> None:
    """Raise ConfigError where the format cannot be compressed so."""
    if packing.is_none:
        return
    if path.name.lower().endswith(".gz"):
        raise ConfigError(
            f"output.compression: expected none for a file that is compressed as a whole, got '{packing.kind}' with "
            f"'{path.name}'; write '{path.name[:-3]}', or leave compression out"
        )
    if packing.kind not in chosen.compressions:
        allowed = ", ".join(("none", *chosen.compressions))
        raise ConfigError(
            f"output.compression: expected one of {allowed} for this kind of file, got '{packing.kind}' with "
            f"'{path.name}'; choose one of them, or layout 'default' and a name in .fits"
        )


def check_several(path: Path, n_processes: int, packing: Packing = UNPACKED) -> None:
    """Raise ConfigError where so many processes cannot write such a file together."""
    if n_processes > 1 and not packing.is_none:
        raise ConfigError(
            f"output.compression: expected none where {n_processes} processes write one file, got '{packing.kind}'; "
            f"leave it out and compress the file afterwards (fpack), or run in one process"
        )
    if n_processes > 1 and not path.name.lower().endswith(TOGETHER):
        raise ConfigError(
            f"output.path: expected a path that ends in {TOGETHER} where {n_processes} processes write one file, got "
            f"'{path.name}'; write '{path.name.split('.')[0] or 'cube'}{TOGETHER}' and convert it afterwards, or run "
            f"in one process"
        )


def file_size(
    chosen: FileFormat, shape: tuple[int, int, int], *, noise: bool, truth: bool = False, float64: bool = False
) -> int:
    """Bytes of an uncompressed file with a cube of this shape (y, x, wave): to be called before a run."""
    n_y, n_x, n_wave = shape
    bytes_each = 8 if chosen.keeps_all and float64 else 4
    n_images = chosen.images + chosen.noise_images * noise + (truth and chosen.keeps_all)
    voxel = bytes_each * n_images + chosen.mask_bytes * chosen.masks
    spaxel = n_wave * voxel + bytes_each * chosen.keeps_all
    return n_y * n_x * spaxel + HEADER_BYTES + BYTES_PER_BIN * n_wave
