"""Settings of an aperture: which part of the field sees the sky."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rubix_like.config.quantities import Arcsec, as_tuple, one_or_many
from rubix_like.config.settings import AbstractSettings

Sizes = Annotated[
    tuple[Annotated[Arcsec, Field(gt=0)], ...],
    BeforeValidator(as_tuple),
    Field(min_length=1, max_length=2),
    one_or_many({"minItems": 1, "maxItems": 2}),
]

_MOST_SIZES: dict[str, int] = {"square": 1, "rectangle": 2, "circle": 1, "hexagon": 2, "mask": 0}


class ApertureSettings(AbstractSettings):
    """Part of the field that sees the sky; spaxels whose centre lies outside are masked, after the PSF."""

    shape: Literal["square", "rectangle", "circle", "hexagon", "mask"]
    size: Sizes | None = None
    """Arcsec: the square's side; the rectangle's side or [x, y]; the circle's diameter; the hexagon from corner to
    corner (East-West) or [corner to corner, flat to flat]; null: as large as the field."""
    file: Path | None = None
    """Of shape mask: a FITS image or .npy file (y, x) of the field's spaxels, in the cube's order; not 0 is inside."""

    @model_validator(mode="after")
    def _check_shape(self) -> "ApertureSettings":
        if (self.file is not None) != (self.shape == "mask"):
            came = "none" if self.file is None else f"'{self.file}'"
            wanted = "a file (FITS or .npy) with shape mask" if self.shape == "mask" else "a file only with shape mask"
            raise ValueError(f"expected {wanted}, got {came}")
        given, most = len(self.size or ()), _MOST_SIZES[self.shape]
        if given > most:
            allowed = "no size" if most == 0 else "one size" if most == 1 else "one or two sizes"
            raise ValueError(f"expected {allowed} of a {self.shape}, got {given}")
        return self
