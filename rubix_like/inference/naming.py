"""Which parameters of a model can be free, under which names, in which units and shapes."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from rubix_like.config.fit import FitSettings
from rubix_like.config.quantities import InUnit
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.forward import GALAXY, STARS, leaf_at
from rubix_like.inference.free import Free, FreeParameter, read_prior
from rubix_like.inference.likelihood import NOISE_SCALE
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.synthetic import DEFAULTS

RUN_UNITS: Mapping[str, str] = {
    "observation.inclination": "deg",
    "observation.position_angle": "deg",
    "observation.offset": "arcsec",
    "observation.velocity_offset": "km/s",
    "observation.field_angle": "deg",
    "instrument.psf.fwhm": "arcsec",
    "instrument.psf.beta": "",
    "dust.a_v": "mag",
}
"""Parameters of the observation and the instrument -> their units."""

STAR_UNITS: Mapping[str, str] = {
    "stars.position": "kpc",
    "stars.velocity": "km/s",
    "stars.initial_mass": "Msun",
    "stars.log_age": "",
    "stars.metallicity": "",
}
"""Arrays of a given galaxy's stars -> their units."""


def _synthetic_units() -> dict[str, str]:
    """Parameters of a synthetic galaxy -> their units, as its settings state them."""
    units = {}
    for name in DEFAULTS:
        marks = [mark for mark in SyntheticReader.model_fields[name].metadata if isinstance(mark, InUnit)]
        units[GALAXY + name] = marks[0].unit if marks else ""
    return units


GALAXY_UNITS: Mapping[str, str] = _synthetic_units()
"""Parameters of a synthetic galaxy -> their units."""

UNITS: Mapping[str, str] = {**RUN_UNITS, **GALAXY_UNITS, **STAR_UNITS, NOISE_SCALE: ""}
"""Everything that can be free."""

MOVES_STARS: tuple[str, ...] = (
    "observation.inclination",
    "observation.position_angle",
    "observation.offset",
    "observation.field_angle",
    "stars.position",
    *(GALAXY + name for name in DEFAULTS if name.endswith(("_scale_length", "_scale_height", "_effective_radius"))),
)
"""Parameters that act through the stars' positions on the sky, of which the deposit `nearest` has no gradient."""


def check_name(name: str) -> None:
    """Raise ConfigError for what cannot be free."""
    if name not in UNITS:
        raise ConfigError(f"fit.free: unknown parameter '{name}'{suggest(name, UNITS)}")


def read_free(settings: FitSettings, trees: Mapping[str, Any], deposit: str) -> Free:
    """The free parameters with their shapes; ConfigError for one that the model does not have, or cannot follow.

    `trees`: what the names are leaves of: "galaxy." a synthetic galaxy, "stars." stars, "" the run's parameters.
    """
    if not settings.free:
        raise ConfigError("fit.free: expected at least one parameter with its prior, got none")
    parameters = []
    for name, prior in settings.free.items():
        check_name(name)
        if deposit == "nearest" and name in MOVES_STARS:
            raise ConfigError(
                f"fit.free.{name}: expected engine.deposit cic, tsc or smoothed, got nearest, of which it has no "
                f"gradient; set engine.deposit: tsc"
            )
        parameters.append(FreeParameter(read_prior(name, prior, UNITS[name]), name, _shape(name, trees), UNITS[name]))
    if settings.noise_scale is not None:
        parameters.append(FreeParameter(read_prior(NOISE_SCALE, settings.noise_scale, ""), NOISE_SCALE))
    return Free(tuple(parameters))


def _shape(name: str, trees: Mapping[str, Any]) -> tuple[int, ...]:
    """Of the leaf that a name stands for."""
    prefix = next((prefix for prefix in (GALAXY, STARS) if name.startswith(prefix)), "")
    if prefix not in trees:
        needed = "galaxy: {reader: synthetic}" if prefix == GALAXY else "a galaxy that is read from a file, or given"
        raise ConfigError(f"fit.free.{name}: expected {needed}, got another galaxy")
    try:
        leaf = leaf_at(trees[prefix], name.removeprefix(prefix))
    except AttributeError:
        leaf = None
    if leaf is None:
        section = name.rpartition(".")[0]
        raise ConfigError(f"fit.free.{name}: the model has none; give the run a section '{section}' with it")
    return jnp.shape(leaf)
