"""The grid on which the model of observed data is computed, as an instrument's settings: that of a cube, the bins of an
image's band, cells that cover the aperture of a spectrum, the field of an instrument with fibres."""

import dataclasses
import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig, WavelengthSettings, load_config
from rubix_like.config.data_sets import SpectrumAperture
from rubix_like.config.loading import ConfigSource, check_one_observation, check_sections
from rubix_like.config.sections.instrument import ApertureSettings
from rubix_like.config.sections.observation import instrument_overrides
from rubix_like.cube.bins import SAME_BINS
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed.observed_cube import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.forward.cube_header import Header
from rubix_like.inference.data_sets import DataSet
from rubix_like.instrument.instrument import aperture_sides, inside_aperture
from rubix_like.physics import air
from rubix_like.physics.tangent_plane import from_tangent_plane, separation, to_tangent_plane

SCALE_TOLERANCE: float = 1e-3
"""Largest relative difference of the spaxels of two grids that are the same."""

ANGLE_TOLERANCE: float = 0.1
"""Largest difference in deg of how two fields are turned that are the same."""


@named_arguments
def on_grid_of(config: ConfigSource, observed: ObservedCube) -> RunConfig:
    """The configuration with the spaxels, bins, medium and place of an observed cube.

    Of an instrument with several arms it is the arm that sees the cube's wavelengths. Taken from the cube:
    `instrument.pixel_scale`, `.fov`, `.wavelength`, and `observation.ra`, `.dec`, `.field_angle` where it says them.
    PSF, LSF and all else stay the configuration's; `instrument.aperture` becomes null, for which spaxels count is what
    the cube says. Raises ConfigError for pointings and for an instrument whose wavelengths do not overlap with the
    cube's.
    """
    config = load_config(config)
    if config.observations is not None:
        check_one_observation(config, "the grid of one cube")
    if config.observation.pointings is not None:
        raise ConfigError("observation.pointings: expected null for the fit of one cube, got pointings")
    config = of_one_arm(config, observed)
    section = config.instrument.wavelength
    low, high = _vacuum_ends(section)
    edges = observed.bins.edges[[0, -1]]
    first, last = observed.bins.to_vacuum(edges)
    if last < low or first > high:
        raise ConfigError(
            f"instrument.wavelength: expected a range that overlaps with the data's, {edges[0]:.1f} to {edges[1]:.1f} "
            f"Angstrom in {observed.medium} ({observed.source}), got {section.start:.1f} to {section.stop:.1f} in "
            f"{section.medium} ('{config.instrument.name}'); choose the instrument with which the data were taken"
        )
    bins = observed.bins
    wavelength: dict[str, object] = {"sampling": bins.sampling, "medium": bins.medium}
    if bins.sampling == "table":
        wavelength["edges"] = tuple(bins.edges.tolist())
        if not np.allclose(bins.wavelength, 0.5 * (bins.edges[1:] + bins.edges[:-1]), rtol=1e-12, atol=0):
            wavelength["centres"] = tuple(bins.wavelength.tolist())
    else:
        wavelength |= {"start": bins.first, "stop": float(bins.wavelength[-1]), "step": bins.step}
    instrument = config.instrument.model_dump() | {
        "pixel_scale": observed.pixel_scale,
        "fov": observed.footprint.sides,
        "aperture": None,
        "wavelength": wavelength,
    }
    observation = config.observation.model_dump()
    if observed.ra is not None and observed.dec is not None:
        observation |= {"ra": observed.ra, "dec": observed.dec, "field_angle": observed.field_angle}
    return check_sections(
        dict(config) | {"instrument": instrument, "observation": observation},
        f"configuration on the grid of {observed.source}",
    )


def of_one_arm(config: RunConfig, observed: ObservedCube) -> RunConfig:
    """The run of the arm that sees most of the data's wavelengths; the joined one where they are those of several."""
    arms = config.instrument.arms
    if arms is None:
        return config
    edges = observed.bins.to_vacuum(observed.bins.edges[[0, -1]])
    common = dict[str, float]()
    for name, arm in arms.items():
        low, high = _vacuum_ends(arm.wavelength)
        common[name] = float(min(edges[1], high) - max(edges[0], low))
    most = max(common, key=lambda name: common[name])
    if config.instrument.join and common[most] < (1 - SCALE_TOLERANCE) * (edges[1] - edges[0]):
        return load_config(config, {"instrument.arms": None, "instrument.join": False})
    return load_config(config, {"instrument.arm": most})


def _vacuum_ends(section: WavelengthSettings) -> Float[ndarray, "2"]:
    limits = np.array([section.start, section.stop])
    return limits if section.medium == "vacuum" else air.to_vacuum(limits)


@named_arguments
def check_same_grid(frame: Header, observed: ObservedCube) -> None:
    """Raise ConfigError where a pipeline's cube (`pipeline.frame`) has another grid than an observed one."""
    bins, wanted, source = frame.bins, observed.bins, observed.source
    differences = []
    if frame.shape != observed.shape:
        differences.append(f"instrument: expected shape (y, x, wave) {observed.shape}, got {frame.shape}")
    elif bins.medium != wanted.medium:
        differences.append(f"instrument.wavelength.medium: expected {wanted.medium}, got {bins.medium}")
    elif (off := wanted.distance(bins)) > SAME_BINS:
        differences.append(
            f"instrument.wavelength: expected bins from {wanted.first:.4f} to {wanted.wavelength[-1]:.4f} Angstrom "
            f"({wanted.sampling}), got {bins.first:.4f} to {bins.wavelength[-1]:.4f} ({bins.sampling}), up to "
            f"{off:.3g} bins off"
        )
    if not math.isclose(frame.pixel_scale, observed.pixel_scale, rel_tol=SCALE_TOLERANCE):
        differences.append(
            f"instrument.pixel_scale: expected {observed.pixel_scale:g} arcsec, got {frame.pixel_scale:g}"
        )
    angle = float(frame.meta.get("field_angle") or 0.0)
    turned = observed.field_angle - angle
    if observed.ra is not None and abs((turned + 180.0) % 360.0 - 180.0) > ANGLE_TOLERANCE:
        differences.append(f"observation.field_angle: expected {observed.field_angle:g} deg, got {angle:g}")
    if differences:
        raise ConfigError(
            f"the pipeline's cube is not on the grid of the data ({source}): {'; '.join(differences)}; give the "
            f"configuration instead of the pipeline, or build it from on_grid_of(config, data)"
        )


_CELLS = 15
"""Cells along the smaller side of an aperture."""

_MOST_CELLS_OF_A_PSF = 100
"""Cells, at most, across the FWHM of the PSF."""

_FINE = 16
"""Places along each side of a cell at which it is asked whether they lie inside an aperture."""

_ARMS = ("arms", "arm", "join")
"""Keys of an instrument that say which of its arms there are."""


def grid_of(data: DataSet, run: RunConfig) -> tuple[ObservedCube, dict[str, ndarray]]:
    """The axes of a set's model, as a cube without data, and the `Effects` that lead from there to the data's.

    Of an image the bins of its band, of a spectrum cells that cover its aperture, of fibres the field of their
    instrument, as the run `run` of the set has it.
    """
    observed, settings = data.observed, data.settings
    if data.band is not None:
        bins = data.band.bins(settings.bins)
        return _empty(observed, bins=bins), {"band": data.band.weights(bins)}
    if settings.aperture is not None:
        aperture = settings.aperture
        footprint, share = cells_of(aperture)
        psf, side = run.instrument.psf, footprint.pixel_scale
        widest = float(psf.fwhm_table.max()) if psf is not None and psf.is_profile else 0.0
        if side < widest / _MOST_CELLS_OF_A_PSF:
            key, value = ("size", min(aperture.size)) if aperture.pixel_scale is None else ("pixel_scale", side)
            least = value / side * widest / _MOST_CELLS_OF_A_PSF
            raise ConfigError(
                f"fit.data.{data.name}.aperture.{key}: expected at least {least:.2g} arcsec beside a PSF of "
                f"{widest:.4g} arcsec FWHM, got {value:g}; numbers without a unit are in arcsec"
            )
        place = {"ra": aperture.ra, "dec": aperture.dec, "field_angle": float(aperture.angle)}
        return _empty(observed, footprint=footprint, **place), {"share": share}
    if data.kind == "fibres":
        angle = float(run.observation.field_angle or 0.0)
        return _empty(observed, footprint=Footprint.build(run.instrument), field_angle=angle), {}
    return observed, {}


def _empty(observed: ObservedCube, **axes: Any) -> ObservedCube:
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
    """The axes, mask and header of a set's data, from those of its model's cube."""
    observed = data.observed
    if data.kind == "image":
        nothing = np.zeros(1, np.int32)
        return dataclasses.replace(frame, bins=observed.bins, lsf_fwhm=np.zeros(1), wave_bits=nothing)
    if data.kind == "cube":
        return frame
    n_y, side = 1, float(np.sqrt(first_bins.footprint.n_element)) * first_bins.pixel_scale
    if data.kind == "fibres":
        n_y, side = observed.footprint.n_y, frame.footprint.pixel_scale
    bits = np.zeros((n_y, 1), np.int32)
    return dataclasses.replace(frame, footprint=Footprint(n_y, 1, side), spaxel_bits=bits)


def config_of(config: RunConfig, data: DataSet, lsf_scale: float = 1.0) -> RunConfig:
    """The configuration with the instrument and the pipeline of a set, its line spread `lsf_scale` times as wide.

    Of an instrument with arms it is the arm that saw the data, or the one that the set names; what the set says of
    wavelengths, line spread and detector is that arm's.
    """
    settings = data.settings
    section = dict(settings.instrument or {})
    if "name" in section or "based_on" in section:
        config, section = load_config(config, overrides={"instrument": section}), {}
    if data.band is None:
        arms = {f"instrument.{key}": section.pop(key) for key in _ARMS if key in section}
        config = of_one_arm(load_config(config, overrides=arms) if arms else config, data.observed)
    overrides = instrument_overrides(section) | ({} if settings.pipeline is None else {"pipeline": settings.pipeline})
    config = load_config(config, overrides=overrides) if overrides else config
    if data.band is not None:
        bins = data.band.bins(settings.bins)
        ends = {"start": bins.first, "stop": float(bins.wavelength[-1]), "step": bins.step}
        section = {"sampling": "linear", "medium": "vacuum", **ends}
        alone = {"lsf": None, "arms": None, "join": False, "wavelength": section}
        config = load_config(config, overrides={f"instrument.{key}": value for key, value in alone.items()})
    if lsf_scale != 1.0 and config.instrument.lsf is not None:
        lsf = config.instrument.lsf
        times = {
            name: tuple(lsf_scale * value for value in given)
            for name in ("polynomial", "fwhm")
            if (given := getattr(lsf, name))
        }
        if lsf.resolving_power:
            times["resolving_power"] = tuple(value / lsf_scale for value in lsf.resolving_power)
        wider = lsf.model_copy(update=times).model_dump()
        config = load_config(config, overrides={"instrument.lsf": wider})
    return config


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
