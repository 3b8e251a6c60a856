"""The grid on which the model of a data set is computed, and the configuration that makes it there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config import RunConfig, load_config
from rubix_like.config.data_sets import SpectrumAperture
from rubix_like.config.sections.aperture import ApertureSettings
from rubix_like.config.sections.instrument import LSFSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.forward.cube_header import Header
from rubix_like.inference.data_grid import of_one_arm, on_grid_of
from rubix_like.inference.sets.effects import AbstractView, ApertureView, BandView
from rubix_like.inference.sets.read_sets import DataSet
from rubix_like.instrument.apertures import aperture_sides, inside_aperture
from rubix_like.physics.tangent_plane import from_tangent_plane, separation, to_tangent_plane

_CELLS = 15
"""Cells along the smaller side of an aperture."""

_FINE = 16
"""Places along each side of a cell at which it is asked whether they lie inside an aperture."""

_ARMS = ("arms", "arm", "join")
"""Keys of an instrument that say which of its arms there are."""

_PARTS = ("wavelength", "psf", "detector")
"""Sections of an instrument that are merged key by key."""


@dataclasses.dataclass(frozen=True, eq=False)
class SetGrid:
    """Where the model of a set is computed: `cube` has the axes of the model's cube (and no data), `view` takes it to
    those of the data (None: they are the same)."""

    cube: ObservedCube
    view: AbstractView | None


def grid_of(data: DataSet, run: RunConfig) -> SetGrid:
    """The grid of a set's model: of an image the bins of its band, of a spectrum cells that cover its aperture, of
    fibres the field of their instrument, as the run `run` of the set has it."""
    observed, settings = data.observed, data.settings
    if data.band is not None:
        bins = data.band.bins(settings.bins)
        return SetGrid(_empty(observed, bins=bins), BandView(data.band.weights(bins)))
    if settings.aperture is not None:
        footprint, share = cells_of(settings.aperture)
        aperture = settings.aperture
        place = {"ra": aperture.ra, "dec": aperture.dec, "field_angle": float(aperture.angle)}
        return SetGrid(_empty(observed, footprint=footprint, **place), ApertureView(share))
    if data.kind == "fibres":
        turned = {
            "footprint": Footprint.build(run.instrument),
            "field_angle": float(run.observation.field_angle or 0.0),
        }
        return SetGrid(_empty(observed, **turned), None)
    return SetGrid(observed, None)


def _empty(observed: ObservedCube, **axes: Any) -> ObservedCube:
    """A cube without data on other axes."""
    footprint, bins = axes.get("footprint", observed.footprint), axes.get("bins", observed.bins)
    shape = (*footprint.shape, bins.n_wave)
    flux, used = np.broadcast_to(0.0, shape), np.broadcast_to(True, shape)
    return dataclasses.replace(observed, flux=flux, variance=None, used=used, **axes)


def cells_of(aperture: SpectrumAperture) -> tuple[Footprint, Float[ndarray, "y x"]]:
    """Cells about the centre of an aperture, and the share of each that lies inside."""
    shape = ApertureSettings(shape=aperture.shape, size=aperture.size)
    width, height = aperture_sides(shape, (0.0, 0.0))
    side = aperture.pixel_scale or min(width, height) / _CELLS
    n_y, n_x = (int(np.ceil(side_length / side - 1e-6)) for side_length in (height, width))
    footprint, fine = Footprint(n_y, n_x, side), Footprint(_FINE * n_y, _FINE * n_x, side / _FINE)
    x, y = np.meshgrid(*fine.centres())
    inside = inside_aperture(aperture.shape, x, y, width, height)
    return footprint, inside.reshape(n_y, _FINE, n_x, _FINE).mean(axis=(1, 3))


def frame_of(frame: Header, data: DataSet, first_bins: ObservedCube) -> Header:
    """The axes, mask and header of a set's own data, from those of its model's cube."""
    observed = data.observed
    if data.kind == "image":
        nothing = np.zeros(1, np.int32)
        return dataclasses.replace(frame, bins=observed.bins, lsf_fwhm=np.zeros(1), wave_bits=nothing)
    if data.kind == "spectrum":
        side = float(np.sqrt(first_bins.footprint.n_element)) * first_bins.pixel_scale
        bits = np.zeros((1, 1), np.int32)
        return dataclasses.replace(frame, footprint=Footprint(1, 1, side), spaxel_bits=bits)
    if data.kind == "fibres":
        n_fibre, scale = observed.footprint.n_y, frame.footprint.pixel_scale
        bits = np.zeros((n_fibre, 1), np.int32)
        return dataclasses.replace(frame, footprint=Footprint(n_fibre, 1, scale), spaxel_bits=bits)
    return frame


def config_of(config: RunConfig, data: DataSet, lsf_scale: float = 1.0) -> RunConfig:
    """The configuration with the instrument and the pipeline of a set, its line spread `lsf_scale` times as wide.

    Of an instrument with arms it is the arm that saw the data, or the one that the set names; what the set says of
    wavelengths, line spread and detector is that arm's.
    """
    settings = data.settings
    section = dict(settings.instrument or {})
    try:
        made = config
        if "name" in section or "based_on" in section:
            made, section = load_config(made, overrides={"instrument": section}), {}
        if data.band is None:
            arms = {f"instrument.{key}": section.pop(key) for key in _ARMS if key in section}
            made = of_one_arm(load_config(made, overrides=arms) if arms else made, data.observed)
        overrides = _dotted(section) | ({} if settings.pipeline is None else {"pipeline": settings.pipeline})
        made = load_config(made, overrides=overrides) if overrides else made
        if data.band is not None:
            bins = data.band.bins(settings.bins)
            ends = {"start": bins.first, "stop": float(bins.wavelength[-1]), "step": bins.step}
            section = {"sampling": "linear", "medium": "vacuum", **ends}
            alone = {"lsf": None, "arms": None, "join": False, "wavelength": section}
            made = load_config(made, overrides={f"instrument.{key}": value for key, value in alone.items()})
        if lsf_scale != 1.0 and made.instrument.lsf is not None:
            wider = scaled_lsf(made.instrument.lsf, lsf_scale).model_dump()
            made = load_config(made, overrides={"instrument.lsf": wider})
        return made
    except ConfigError as error:
        raise ConfigError(f"fit.data.{data.name}: {error}") from error


def _dotted(section: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of an instrument that replace those of the run's, by dotted name."""
    found = {}
    for key, value in section.items():
        part = key in _PARTS and isinstance(value, Mapping) and "kind" not in value
        found |= (
            {f"instrument.{key}.{own}": one for own, one in value.items()} if part else {f"instrument.{key}": value}
        )
    return found


def scaled_lsf(lsf: LSFSettings, factor: float) -> LSFSettings:
    """A line spread that many times as wide."""
    times = {
        name: tuple(factor * value for value in given)
        for name in ("polynomial", "fwhm")
        if (given := getattr(lsf, name))
    }
    if lsf.resolving_power:
        times["resolving_power"] = tuple(value / factor for value in lsf.resolving_power)
    return lsf.model_copy(update=times)


_FARTHEST = 1.0
"""deg by which fields of one galaxy are apart at most."""


def displacement_of(config: RunConfig, observed: ObservedCube, first: ObservedCube) -> Float[ndarray, "2"]:
    """(East, North) in arcsec by which the galaxy's offset from the centre of a set's field is more than that from the
    first cube's; 0 where one of them does not say where it is."""
    if observed.ra is None or observed.dec is None or first.ra is None or first.dec is None:
        return np.zeros(2)
    apart = separation((first.ra, first.dec), (observed.ra, observed.dec))
    if apart > _FARTHEST:
        raise ConfigError(
            f"fit.data: expected fields of one galaxy, got {observed.source} {apart:.4g} deg from {first.source}; "
            f"check their coordinates"
        )
    east, north = config.observation.offset
    galaxy = from_tangent_plane((first.ra, first.dec), (float(east), float(north)))
    return np.array(to_tangent_plane((observed.ra, observed.dec), galaxy)) - np.array([east, north])


def on_set_grid(config: RunConfig, grid: SetGrid, displacement: Float[ndarray, "2"]) -> RunConfig:
    """The configuration on the grid of a set, with the galaxy's offset from the centre of its field."""
    offset = [float(angle) for angle in np.array(config.observation.offset) + displacement]
    return load_config(on_grid_of(config, grid.cube), overrides={"observation.offset": offset})


def within_ends(n_wave: int, reach: float) -> Bool[ndarray, " wave"]:
    """Bins that no light from beyond the ends is spread to."""
    place = np.arange(n_wave)
    return np.minimum(place, place[::-1]) >= reach
