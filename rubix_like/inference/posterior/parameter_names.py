"""Which parameters of a model can be free, under which names, in which units and shapes."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rubix_like.config.quantities import InUnit
from rubix_like.config.sections.fit import FitSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.galaxy.synthetic import DEFAULTS
from rubix_like.inference.posterior.fit_model import GALAXY, STARS, V_LOS, leaf_at
from rubix_like.inference.posterior.free import OF_GALAXY, Free, FreeParameter, Latent, read_prior, read_values
from rubix_like.inference.posterior.likelihood import NOISE_SCALE
from rubix_like.inference.posterior.limits import check_prior_range
from rubix_like.inference.posterior.priors import AbstractPrior
from rubix_like.readers.synthetic_reader import SyntheticReader

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
    V_LOS: "km/s",
    "stars.initial_mass": "Msun",
    "stars.log_age": "",
    "stars.metallicity": "",
}
"""What can be free of each star of a given galaxy -> its unit."""


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


GAS: tuple[str, ...] = tuple(GALAXY + name for name in DEFAULTS if name.startswith(("gas_", "star_formation")))
"""Parameters of a synthetic galaxy's gas, which no stage paints."""

_MEANINGS: Mapping[str, str] = {
    "log_age": "log10(age / yr), e.g. 9.5 for 3.2 Gyr",
    "metallicity": "a metal mass fraction, e.g. 0.02",
}
"""What numbers without a unit are, by the end of a parameter's name."""


def check_name(name: str) -> None:
    """Raise ConfigError for what cannot be free."""
    if name == NOISE_SCALE:
        raise ConfigError(f"fit.free.{name}: expected its prior as fit.noise_scale, got it among the free parameters")
    if name not in UNITS:
        raise ConfigError(f"fit.free: unknown parameter '{name}'{suggest(name, UNITS)}")
    if name in GAS:
        raise ConfigError(
            f"fit.free.{name}: expected a parameter of the stars or the observation, got one of the gas, which no "
            f"stage paints; leave it out"
        )


def check_free(name: str, prior: Any) -> None:
    """Raise ConfigError for what can be seen to be wrong with a free parameter before there is a model."""
    check_name(name)
    of_galaxy = isinstance(prior, Mapping) and any(OF_GALAXY in numbers for numbers in prior.values())
    if not (of_galaxy and name.startswith((GALAXY, STARS))):
        _read_prior(name, prior, None)


def read_free(settings: FitSettings, trees: Mapping[str, Any], deposit: str) -> Free:
    """The free parameters with their shapes; ConfigError for one that the model does not have, or cannot follow.

    `trees`: what the names are leaves of: "galaxy." a synthetic galaxy, "stars." stars, "" the run's parameters; and
    "stars.v_los" the stars' own velocities along the line of sight.
    """
    if not settings.free:
        raise ConfigError("fit.free: expected at least one parameter with its prior, got none")
    if V_LOS in settings.free and "stars.velocity" in settings.free:
        raise ConfigError(
            f"fit.free: expected stars.velocity or {V_LOS}, which is a part of it, got both; keep {V_LOS}"
        )
    parameters = []
    for name, prior in settings.free.items():
        check_name(name)
        if deposit == "nearest" and name in MOVES_STARS:
            raise ConfigError(
                f"fit.free.{name}: expected engine.deposit cic, tsc or smoothed, got nearest, of which it has no "
                f"gradient; set engine.deposit: tsc"
            )
        own = leaf_of(name, trees)
        chosen = _read_prior(name, prior, own if name.startswith((GALAXY, STARS)) else None)
        _check_shape(name, chosen, jnp.shape(own))
        check_prior_range(name, chosen, UNITS[name], jnp.shape(own))
        parameters.append(FreeParameter(chosen, name, jnp.shape(own), UNITS[name]))
    if settings.noise_scale is not None:
        scale = read_prior(NOISE_SCALE, settings.noise_scale, "")
        check_prior_range(NOISE_SCALE, scale, "")
        parameters.append(FreeParameter(scale, NOISE_SCALE))
    return Free(tuple(parameters))


def _read_prior(name: str, prior: Any, own: Any) -> AbstractPrior:
    """The prior of a parameter; the error says what its numbers are where they have no unit."""
    try:
        return read_prior(name, prior, UNITS[name], own)
    except ConfigError as error:
        meaning = next((text for end, text in _MEANINGS.items() if name.endswith(end) and not UNITS[name]), None)
        if meaning is None or "expected a finite number" not in str(error):
            raise
        raise ConfigError(f"{error}; {name} is {meaning}") from error


def _check_shape(name: str, prior: AbstractPrior, shape: tuple[int, ...]) -> None:
    """Raise ConfigError for arrays of numbers that do not go with the values."""
    for leaf in jax.tree.leaves(prior):
        if jnp.ndim(leaf) > len(shape) or any(
            n not in {1, m} for n, m in zip(leaf.shape[::-1], shape[::-1], strict=False)
        ):
            raise ConfigError(
                f"fit.free.{name}: expected one number for all, or numbers of the parameter's shape {shape}, got some "
                f"of shape {jnp.shape(leaf)}"
            )


def leaf_of(name: str, trees: Mapping[str, Any]) -> Any:
    """The array that a name stands for, with its own values."""
    prefix = next((prefix for prefix in (GALAXY, STARS) if name.startswith(prefix)), "")
    if prefix not in trees:
        needed = "galaxy: {reader: synthetic}" if prefix == GALAXY else "a galaxy that is read from a file, or given"
        raise ConfigError(f"fit.free.{name}: expected {needed}, got another galaxy")
    if name in trees:
        return trees[name]
    try:
        leaf = leaf_at(trees[prefix], name.removeprefix(prefix))
    except AttributeError:
        leaf = None
    if leaf is None:
        section = name.rpartition(".")[0]
        raise ConfigError(
            f"fit.free.{name}: expected a run whose section '{section}' has it, got null, or another kind; give it one"
        )
    return leaf


def read_start(start: Mapping[str, Any] | None, free: Free, trees: Mapping[str, Any]) -> Latent | None:
    """The latents of the values of `fit.start`; parameters that it leaves out are at the medians of their priors.

    A value is a number, or an array of the parameter's shape; `galaxy` stands for those that the galaxy has. Raises
    ConfigError for unknown names and for values of another shape or outside their prior.
    """
    if start is None:
        return None
    for name in start:
        if name not in free.names:
            raise ConfigError(f"fit.start: '{name}' is no free parameter{suggest(name, free.names)}")
    medians = free.values(jnp.zeros(free.n_latent))
    values = {}
    for parameter in free.parameters:
        name = parameter.name
        given = start.get(name, medians[name])
        if isinstance(given, str) and given.strip() == OF_GALAXY:
            given = leaf_of(name, trees)
        value = np.asarray(read_values(f"fit.start.{name}", given, parameter.unit))
        try:
            values[name] = np.broadcast_to(value, parameter.shape)
        except ValueError as error:
            raise ConfigError(
                f"fit.start.{name}: expected a number or an array of shape {parameter.shape}, got one of {value.shape}"
            ) from error
    try:
        return free.latent(values)
    except ValueError as error:
        raise ConfigError(f"fit.start.{error}") from error
