"""Whether a prior stays where its parameter has a meaning: within the limits of the settings and of particles."""

from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import BaseModel, TypeAdapter, ValidationError

from rubix_like.config import ObservationSettings, PSFSettings, RunConfig
from rubix_like.config.messages import explain_value
from rubix_like.config.sections.dust import DustSettings
from rubix_like.errors import ConfigError
from rubix_like.forward.census import log_universe_age
from rubix_like.galaxy.validation import AGE_SLACK, LARGEST, limits_of
from rubix_like.inference.posterior.fit_model import GALAXY, STARS, V_LOS
from rubix_like.inference.posterior.free import Free, FreeParameter, shown
from rubix_like.inference.posterior.likelihood import NOISE_SCALE
from rubix_like.inference.posterior.priors import AbstractPrior
from rubix_like.physics.templates import TemplateAxes
from rubix_like.readers.synthetic_reader import SyntheticReader

REACH: float = 4.0
"""Latents up to which a prior has to stay within the limits: all but 6e-5 of it."""

SMALLEST_LATENT: float = -8.0
"""Latent of the noise scale that is taken for its lower limit."""

_SECTIONS: Mapping[str, type[BaseModel]] = {
    "observation.": ObservationSettings,
    "instrument.psf.": PSFSettings,
    "dust.": DustSettings,
    GALAXY: SyntheticReader,
}
"""Beginnings of names -> the settings that state their limits."""

_AXES: Mapping[str, str] = {"log_age": "age", "metallicity": "metallicity"}
"""Ends of the names of populations' parameters -> the axis of the SSP library on which they lie."""

_ROUNDING = 1e-4

_TURN = 360.0
"""deg."""


def check_prior_range(name: str, prior: AbstractPrior, unit: str, shape: tuple[int, ...] = ()) -> None:
    """Raise ConfigError for a prior that leaves what its parameter can be."""
    if name == NOISE_SCALE and not float(prior.value(jnp.asarray(SMALLEST_LATENT))) > 0:
        raise ConfigError(f"fit.{name}: expected a prior above 0, e.g. {{log_uniform: [0.5, 2]}}, got {shown(prior)}")
    low, high = reach(prior, shape)
    fastest = LARGEST["velocity"]
    if unit == "km/s" and not max(np.max(np.abs(low)), np.max(np.abs(high))) <= fastest:
        raise ConfigError(
            f"fit.free.{name}: expected velocities below that of light, got a prior from {np.min(low):.4g} to "
            f"{np.max(high):.4g} km/s; check its unit"
        )
    for end in (low, high):
        fault = _fault(name, end)
        if fault is not None:
            raise ConfigError(
                f"fit.free.{name}: expected a prior within the parameter's limits, got one that reaches "
                f"{_first(end, name):.4g}{f' {unit}' if unit else ''} at {REACH:g} sigma: {fault}; take a narrower "
                f"one, or uniform, log_normal or truncated_normal"
            )
    if unit == "deg" and np.max(high - low) > _TURN:
        raise ConfigError(
            f"fit.free.{name}: expected a prior within {_TURN:g} deg, got one from {np.min(low):.4g} to "
            f"{np.max(high):.4g} deg, in which the same model comes several times"
        )


def reach(prior: AbstractPrior, shape: tuple[int, ...] = (), latent: float = REACH) -> tuple[ndarray, ndarray]:
    """Lowest and highest value up to a latent, of each value of an array."""
    low, high = (np.asarray(prior.value(jnp.full(shape, own)), np.float64) for own in (-latent, latent))
    return low, high


def _fault(name: str, end: Float[ndarray, "..."]) -> str | None:
    """What is wrong with values of a parameter; None if nothing is."""
    if name.startswith(STARS):
        low, high = _limits_of_stars(name)
        return None if np.all((end >= low) & (end <= high)) else f"expected values from {low:g} to {high:g}"
    prefix = next((prefix for prefix in _SECTIONS if name.startswith(prefix)), None)
    if prefix is None:
        return None
    field = _SECTIONS[prefix].model_fields[name.removeprefix(prefix)]
    form: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(form)
    try:
        for row in end.reshape(-1, *end.shape[-1:]) if end.ndim else [end]:
            adapter.validate_python(row.tolist())
    except ValidationError as error:
        return explain_value(error)
    return None


def _first(end: Float[ndarray, "..."], name: str) -> float:
    """Of several values the first that is wrong."""
    if not name.startswith(STARS):
        return float(end.flat[0])
    low, high = _limits_of_stars(name)
    return float(end.flat[int(np.argmax((end < low) | (end > high)))])


def _limits_of_stars(name: str) -> tuple[float, float]:
    return limits_of("velocity" if name == V_LOS else name.removeprefix(STARS))


def library_notes(free: Free, axes: TemplateAxes) -> tuple[str, ...]:
    """Says so where priors of ages and metallicities leave the SSP library; ConfigError for one wholly beyond it."""
    notes = []
    for parameter, axis in _populations(free):
        nodes = np.asarray(axes.nodes[axes.names.index(axis)], np.float64)[[0, -1]]
        first, last = 10**nodes if axis == "metallicity" else nodes
        lower, upper = reach(parameter.prior, parameter.shape)
        low, high = float(lower.min()), float(upper.max())
        text = f"the SSP library's range, {first:.4g} to {last:.4g}"
        if high < first or low > last:
            raise ConfigError(
                f"fit.free.{parameter.name}: expected a prior that overlaps with {text}, got {low:.4g} to {high:.4g}"
            )
        if low < first * (1 - _ROUNDING) or high > last * (1 + _ROUNDING):
            notes.append(
                f"{parameter.name}: its prior, {low:.4g} to {high:.4g}, leaves {text}; stars beyond shine as at its end"
            )
    return tuple(notes)


def age_notes(free: Free, config: RunConfig) -> tuple[str, ...]:
    """Says so where priors allow for stars that are older than the Universe at the galaxy's redshift."""
    oldest = log_universe_age(config)
    notes = []
    for parameter, axis in _populations(free):
        highest = float(reach(parameter.prior, parameter.shape)[1].max())
        if axis == "age" and highest > oldest + AGE_SLACK:
            notes.append(
                f"{parameter.name}: its prior reaches {highest:.4g}, older than the Universe at redshift "
                f"{config.observation.redshift:g}, {oldest:.4g} ({10 ** (oldest - 9):.3g} Gyr)"
            )
    return tuple(notes)


def _populations(free: Free) -> list[tuple[FreeParameter, str]]:
    """Free ages and metallicities, with their axis in an SSP library."""
    return [
        (parameter, axis)
        for parameter in free.parameters
        for end, axis in _AXES.items()
        if parameter.name.endswith(end) and not parameter.name.endswith("oldest_log_age")
    ]
