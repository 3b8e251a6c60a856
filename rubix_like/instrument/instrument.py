"""An instrument: its field of spaxels, wavelength bins, PSF, LSF and aperture."""

from pathlib import Path
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool
from numpy import ndarray
from pydantic import ValidationError

from rubix_like.arguments import named_arguments
from rubix_like.config import InstrumentSettings, LSFSettings
from rubix_like.config.messages import explain
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.errors import ConfigError, expect_path
from rubix_like.instrument.apertures import aperture_mask
from rubix_like.instrument.fibres.bundle import fibre_places
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.painting import ON_SPAXELS, Painting
from rubix_like.instrument.psf import PSF, USUAL_CHANGE


class Instrument(AbstractGridded, eqx.Module):
    """What a galaxy is observed with.

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
