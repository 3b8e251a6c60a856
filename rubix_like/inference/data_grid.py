"""The grid of an observed cube as an instrument's settings, so that a model is computed on it."""

import math

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig, WavelengthSettings, load_config
from rubix_like.config.loading import ConfigSource, check_one_observation, check_sections
from rubix_like.cube.bins import SAME_BINS
from rubix_like.cube.observed.observed_cube import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.forward.cube_header import Header
from rubix_like.physics import air

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
    instrument = config.instrument.model_dump() | {
        "pixel_scale": observed.pixel_scale,
        "fov": observed.footprint.sides,
        "aperture": None,
        "wavelength": _wavelength_section(observed),
    }
    observation = config.observation.model_dump()
    if observed.ra is not None and observed.dec is not None:
        observation |= {"ra": observed.ra, "dec": observed.dec, "field_angle": observed.field_angle}
    return check_sections(
        dict(config) | {"instrument": instrument, "observation": observation},
        f"configuration on the grid of {observed.source}",
    )


def _wavelength_section(observed: ObservedCube) -> dict[str, object]:
    """The cube's bins by the centres of the first and the last, and their step; those of a table one by one."""
    bins = observed.bins
    if bins.sampling == "table":
        edges, centres = bins.edges, bins.wavelength
        in_the_middle = np.allclose(centres, 0.5 * (edges[1:] + edges[:-1]), rtol=1e-12, atol=0)
        own = {} if in_the_middle else {"centres": tuple(centres.tolist())}
        return {"sampling": bins.sampling, "medium": bins.medium, "edges": tuple(edges.tolist()), **own}
    return {
        "sampling": bins.sampling,
        "medium": bins.medium,
        "start": bins.first,
        "stop": float(bins.wavelength[-1]),
        "step": bins.step,
    }


def of_one_arm(config: RunConfig, observed: ObservedCube) -> RunConfig:
    """The run of the arm that sees most of the data's wavelengths; the joined one where they are those of several."""
    arms = config.instrument.arms
    if arms is None:
        return config
    edges = observed.bins.to_vacuum(observed.bins.edges[[0, -1]])
    seen = {name: _vacuum_ends(arm.wavelength) for name, arm in arms.items()}
    common = {name: min(edges[1], own[1]) - max(edges[0], own[0]) for name, own in seen.items()}
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
