"""An instrument: its field of spaxels, wavelength bins, PSF, LSF and aperture."""

from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray
from pydantic import ValidationError

from rubix_like.arguments import named_arguments
from rubix_like.config import ApertureSettings, InstrumentSettings, LSFSettings
from rubix_like.config.messages import explain
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_spectra import FibrePlaces
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.errors import ConfigError, expect_path
from rubix_like.instrument.fibres.bundle import fibre_places
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.painting import ON_SPAXELS, Painting
from rubix_like.instrument.psf import PSF, USUAL_CHANGE
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.words import reason_of

FLAT_PER_CORNER: float = float(np.sqrt(3) / 2)
"""Distance of opposite sides of a regular hexagon over that of opposite corners."""


def aperture_mask(
    settings: ApertureSettings | None, fov: tuple[float, float], footprint: Footprint
) -> Bool[ndarray, "y x"]:
    """Whether the centre of each spaxel lies in the aperture (None: all do).

    `fov` (x, y) in arcsec. Raises ConfigError for a mask file that cannot be used, and a shape smaller than a spaxel.
    """
    if settings is None:
        return np.ones(footprint.shape, dtype=bool)
    if settings.file is not None:
        return read_mask(settings.file, footprint.shape)
    x, y = np.meshgrid(*footprint.centres())
    width, height = aperture_sides(settings, fov)
    if min(width, height) < footprint.pixel_scale * (1 - 1e-9):
        raise ConfigError(
            f"instrument.aperture.size: expected at least one spaxel, {footprint.pixel_scale:g} arcsec, got "
            f"{min(width, height):g} arcsec; numbers without a unit are in arcsec"
        )
    return inside_aperture(settings.shape, x, y, width, height)


def inside_aperture(
    shape: str, x: Float[ndarray, "y x"], y: Float[ndarray, "y x"], width: float, height: float
) -> Bool[ndarray, "y x"]:
    """Whether points (arcsec from the field's centre) lie in a shape of the given full width and height.

    square, rectangle; circle (an ellipse where width and height differ); hexagon: `width` from corner to corner, two
    corners East and West, `height` from side to side (sqrt(3)/2 of the width where it is regular). The edge is inside.
    """
    x, y = np.abs(x) * (2 / width), np.abs(y) * (2 / height)
    edge = 1 + 1e-9
    if shape == "circle":
        return x**2 + y**2 <= edge
    if shape == "hexagon":
        return (y <= edge) & (2 * x + y <= 2 * edge)
    return (x <= edge) & (y <= edge)


def read_mask(path: Path, shape: tuple[int, int]) -> Bool[ndarray, "y x"]:
    """Pixels that are not 0 in the image of a FITS (the first 2-D one) or .npy file of the field's `shape` (y, x).

    Raises ConfigError that names the key and the file where it cannot be read, has another shape, holds values that
    are not finite, or leaves no spaxel.
    """
    path = path.expanduser()
    try:
        if path.suffix == ".npy":
            images = [np.load(path, allow_pickle=False)]
        else:
            with opened_fits(path, quiet=True) as hdus:
                images = [np.asarray(hdu.data) for hdu in hdus if isinstance(hdu, IMAGES) and hdu.data is not None]
            images = [image for image in images if image.ndim == 2]
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else reason_of(error)
        raise _refusal(path, "a readable FITS image or .npy file", f"an error: {reason}") from error
    if not images:
        raise _refusal(path, "a 2-D image", "none")
    image = images[0]
    if image.shape != shape:
        came = " x ".join(str(length) for length in reversed(image.shape)) or "one number"
        wanted = f"a mask of the field's {shape[1]} x {shape[0]} spaxels"
        raise _refusal(path, wanted, f"{came} (change the file or instrument.fov)")
    if image.dtype.kind not in "biuf" or not np.isfinite(image).all():
        raise _refusal(path, "finite numbers (0 is outside)", f"others, of type {image.dtype}")
    inside = image != 0
    if not inside.any():
        raise _refusal(path, "a value that is not 0 in at least one spaxel", "only 0")
    return inside


def aperture_sides(settings: ApertureSettings, fov: tuple[float, float]) -> tuple[float, float]:
    """Full width and height of a shape in arcsec."""
    if settings.size is not None and len(settings.size) == 2:
        return settings.size[0], settings.size[1]
    is_hexagon = settings.shape == "hexagon"
    if settings.size is not None:
        width = settings.size[0]
    elif settings.shape == "rectangle":
        return fov
    else:
        width = fov[0] if is_hexagon else min(fov)
    return width, width * (FLAT_PER_CORNER if is_hexagon else 1.0)


def _refusal(path: Path, expected: str, came: str) -> ConfigError:
    return ConfigError(f"instrument.aperture.file: expected {expected} in '{path}', got {came}")


class Instrument(AbstractGridded, eqx.Module):
    """The instrument that a galaxy is observed with.

    | field | shape | unit |
    |---|---|---|
    | footprint | | the grid of spaxels: `n_y`, `n_x`, `pixel_scale` (arcsec per spaxel side) |
    | psf | PSF or None | its image on the spaxels |
    | psf_field | FieldPSF or None | the PSFs of all places, where it varies over the field |
    | inside | (y, x) | whether a spaxel's centre lies in the aperture |
    | bins | static | detector bins: `bins.wavelength`, `bins.edges` in Angstrom of `bins.medium` |
    | lsf | static or None | settings of the line-spread function |
    | fibres | FibrePlaces or None | where fibres collect the light, in all exposures; None: spaxels do |
    """

    footprint: Footprint
    psf: PSF | None
    inside: Bool[Array | ndarray, "y x"]
    bins: WavelengthBins = eqx.field(static=True)
    lsf: LSFSettings | None = eqx.field(static=True)
    name: str = eqx.field(static=True)
    fibres: FibrePlaces | None = None
    psf_field: FieldPSF | None = None

    @classmethod
    @named_arguments
    def build(
        cls, settings: InstrumentSettings, painting: Painting = ON_SPAXELS, psf_change: float = USUAL_CHANGE
    ) -> "Instrument":
        """The instrument that checked settings describe, its PSF for stars that are painted in some way and for widths
        that change by this fraction; raises ConfigError for a file that cannot be used."""
        bins, footprint = WavelengthBins.build(settings.wavelength), Footprint.build(settings)
        psf, psf_field = None, None
        if settings.psf is not None:
            planned = settings.psf, settings.pixel_scale, bins.wavelength, painting, psf_change
            psf_field = None if settings.psf.field is None else FieldPSF.build(*planned)
            psf = PSF.build(*planned) if psf_field is None else psf_field.psf
        return cls(
            footprint=footprint,
            psf=psf,
            inside=aperture_mask(settings.aperture, settings.fov, footprint),
            bins=bins,
            lsf=settings.lsf,
            name=settings.name,
            fibres=None if settings.fibres is None else fibre_places(settings.fibres, bins),
            psf_field=psf_field,
        )

    @property
    def psf_reach(self) -> int:
        """Spaxels on each side that the PSF spreads light to; 0 without a PSF."""
        return 0 if self.psf is None else self.psf.reach


@named_arguments
def load_instrument(name: str | Path, **overrides: Any) -> Instrument:
    """An instrument by the name of its preset or the path of its YAML, any key overridden: `fov="5 arcsec"`.

    Raises ConfigError that names the key, what was expected and what came; also where `arm` does not choose one of
    several arms, which have no bins in common.
    """
    name = str(expect_path(name, "name", "the name of a preset or the path of a .yaml file"))
    try:
        settings = InstrumentSettings.model_validate({"name": name, **overrides})
    except ValidationError as error:
        raise ConfigError(explain(error, InstrumentSettings, f"instrument '{name}'")) from error
    if settings.arms is not None and not settings.join:
        raise ConfigError(
            f"instrument '{name}': arm: expected one of {', '.join(settings.arms)}, got null; e.g. "
            f"load_instrument('{name}', arm='{next(iter(settings.arms))}')"
        )
    return Instrument.build(settings)
