"""Components of a fit whose populations are free-form: what is planned for them, and the strength of their prior."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from rubix_like.config import RunConfig, load_config
from rubix_like.config.sections.fit import FitSettings
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.galaxy.components.dispersions import FromHeight
from rubix_like.galaxy.components.populations import FreeFormStars, SingleStars
from rubix_like.galaxy.components.smooth import SmoothComponent, SmoothGalaxy
from rubix_like.inference.populations.histories import Populations
from rubix_like.inference.populations.mixtures import Mixtures, Solved, star_painter
from rubix_like.inference.populations.smoothness import smoothness_rows
from rubix_like.inference.populations.weight_draws import Draws, draw_weights
from rubix_like.inference.posterior.fit_model import GALAXY, ComponentsSource, Forward
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.likelihood import Likelihood

_FIRST_STRENGTH = 1.0
"""Of the first search, for weights in units of their mean."""

_WARM, _DRAWS = 200, 600
"""Draws of weights and strengths that are left out, and that are kept."""

_SEED = 1


def solved_numbers(galaxy: SmoothGalaxy) -> tuple[int, ...]:
    """Which components have populations that a fit solves for."""
    return tuple(number for number, own in enumerate(galaxy.components) if _stars_of(own) is not None)


def without_spread_ages(galaxy: SmoothGalaxy) -> SmoothGalaxy:
    """The galaxy to choose quadrature points for: those that are solved for shine alike everywhere."""
    one = SingleStars(jnp.asarray(9.5), jnp.asarray(0.02), jnp.zeros(()))
    components = [
        own if _stars_of(own) is None else dataclasses.replace(own, population=one) for own in galaxy.components
    ]
    return SmoothGalaxy(tuple(components), galaxy.names)


def for_mixtures(config: RunConfig, galaxy: Any) -> RunConfig:
    """The configuration with the method that solving for populations needs; as it is where none are solved for."""
    components = getattr(config.galaxy, "components", ()) if galaxy is None else ()
    own = [part.population for part in components if getattr(part.population, "history", "") == "free_form"]
    given = galaxy.base if isinstance(galaxy, ComponentsSource) else None
    if not any(not part.weights for part in own) and (given is None or not solved_numbers(given)):
        return config
    if config.engine.method == "direct":
        raise ConfigError(
            "engine.method: expected 'auto' or 'basis' for a free-form population that a fit solves for, got 'direct'"
        )
    return load_config(config, overrides={"engine.method": "basis"})


def mixtures_of(source: Any, pipeline: Pipeline, settings: FitSettings, likelihood: Likelihood) -> Mixtures | None:
    """What solving for the populations of a source needs; None where none are solved for.

    Raises ConfigError for settings that do not go with it.
    """
    if not isinstance(source, ComponentsSource) or not solved_numbers(source.base):
        return None
    base, solved = source.base, solved_numbers(source.base)
    _check(base, solved, pipeline, settings)
    painter = star_painter(pipeline.tables)
    dtype = likelihood.flux.dtype
    coefficients, rows, strength, of_row = [], [], [], []
    for place, number in enumerate(solved):
        stars = _stars_of(base.components[number])
        assert stars is not None
        log_age, metallicity = stars.nodes
        coordinates = {"age": jnp.asarray(log_age), "metallicity": jnp.log10(jnp.asarray(metallicity))}
        corners = painter.axes.corners(tuple(coordinates[name] for name in painter.axes.names))
        table = np.asarray(painter.coefficients, np.float64)[np.asarray(corners.index)]
        coefficients.append(np.einsum("nc,ncr->nr", np.asarray(corners.weight, np.float64), table))
        own = len(log_age) * smoothness_rows(np.log10(stars.metallicities), np.array(stars.log_ages))
        rows.append(own)
        of_row += [place] * len(own)
        strength.append(_FIRST_STRENGTH if stars.smoothness is None else stars.smoothness)
    return Mixtures(
        coefficients=tuple(jnp.asarray(own, dtype) for own in coefficients),
        smoothness=jnp.asarray(scipy.linalg.block_diag(*rows), dtype),
        strength=jnp.asarray(strength, dtype),
        flux=likelihood.flux,
        inverse_sigma=likelihood.inverse_sigma,
        of_row=tuple(of_row),
        solved=solved,
        others=tuple(number for number in range(len(base.components)) if number not in solved),
    )


def has_free_strength(forward: Forward) -> bool:
    """Whether the strength of a prior is to be found from the data."""
    if forward.mixtures is None or not isinstance(forward.source, ComponentsSource):
        return False
    stars = [_stars_of(own) for own in forward.source.base.components]
    return any(own is not None and own.smoothness is None for own in stars)


def with_strength(forward: Forward, free: Free, latent: Latent) -> Forward:
    """The model with the strengths of which half of the draws at these latents are higher; those given stay."""
    found = drawn_weights(forward, free, latent)
    assert forward.mixtures is not None
    strength = jnp.median(found.strength, axis=0).astype(forward.mixtures.strength.dtype)
    return eqx.tree_at(lambda own: own.mixtures.strength, forward, jax.device_put(strength, _place(forward)))


def populations_at(forward: Forward, free: Free, latent: Latent) -> dict[str, Populations]:
    """The populations that are solved for at these latents by the names of their components, with draws of the weights
    and strengths."""
    if forward.mixtures is None or not isinstance(forward.source, ComponentsSource):
        return {}
    solved = _solved(forward, free, jnp.asarray(latent))
    draws = drawn_weights(forward, free, latent)
    mixtures, base = forward.mixtures, forward.source.base
    best, drawn = mixtures.parts(solved.weights), mixtures.parts(draws.weights)
    found = {}
    for place, number in enumerate(mixtures.solved):
        stars = _stars_of(base.components[number])
        assert stars is not None
        shape = len(stars.metallicities), len(stars.log_ages)
        mass = float(base.components[number].mass)
        coefficients = np.asarray(mixtures.coefficients[place])
        found[base.names[number]] = Populations(
            labels=(base.names[number],),
            log_age=np.array(stars.log_ages),
            metallicity=np.array(stars.metallicities),
            mass=mass * np.asarray(best[place], np.float64).reshape(1, *shape),
            draws=mass * np.asarray(drawn[place], np.float64).reshape(-1, 1, *shape),
            smoothness=np.asarray(draws.strength, np.float64)[:, place : place + 1],
            light_per_mass=np.asarray(coefficients[:, 0], np.float64).reshape(shape),
        )
    return found


def with_solved_weights(source: ComponentsSource, found: Mapping[str, Populations]) -> ComponentsSource:
    """The source whose free-form populations and masses are those that were found."""
    components = list(source.base.components)
    for number, name in enumerate(source.base.names):
        stars = _stars_of(components[number])
        if stars is not None and name in found:
            mass = found[name].mass[0]
            dtype = components[number].mass.dtype
            population = dataclasses.replace(stars, weights=np.asarray(mass / mass.sum(), dtype).reshape(-1))
            own = np.asarray(mass.sum(), dtype)
            components[number] = dataclasses.replace(components[number], population=population, mass=own)
    return dataclasses.replace(source, base=SmoothGalaxy(tuple(components), source.base.names))


def drawn_weights(forward: Forward, free: Free, latent: Latent) -> Draws:
    """Draws of all weights, and of the strength for each component, at these latents."""
    if forward.mixtures is None or not isinstance(forward.source, ComponentsSource):
        raise ValueError("expected populations that are solved for, got none")
    solved = _solved(forward, free, jnp.asarray(latent))
    stars = [_stars_of(own) for own in forward.source.base.components]
    held = tuple(own.smoothness is not None for own in stars if own is not None)
    return _drawn(forward.mixtures, solved, jax.random.key(_SEED), held)


@eqx.filter_jit
def _drawn(mixtures: Mixtures, solved: Solved, key: Array, held: tuple[bool, ...]) -> Draws:
    groups = jnp.asarray(mixtures.of_row)
    return draw_weights(solved.problem, solved.weights, mixtures.strength, groups, key, _WARM, _DRAWS, held=held)


@jax.jit
def _solved(forward: Forward, free: Free, latent: Float[Array, " latent"]) -> Solved:
    return forward.solved(free.values(latent))


def _stars_of(component: SmoothComponent) -> FreeFormStars | None:
    """The free-form population of a component that is solved for."""
    own = component.population
    return own if isinstance(own, FreeFormStars) and own.is_solved else None


def _place(forward: Forward) -> Any:
    assert forward.mixtures is not None
    return forward.mixtures.strength.sharding


def _check(base: SmoothGalaxy, solved: tuple[int, ...], pipeline: Pipeline, settings: FitSettings) -> None:
    """Raise ConfigError for what does not go with weights that are solved for."""
    what = "for a free-form population that a fit solves for"
    remedy = "give the population's weights, or leave this out"
    if pipeline.plan.sources != (STAR_SOURCE,):
        raise ConfigError(f"pipeline: expected stars alone {what}, got {', '.join(pipeline.plan.sources)}; {remedy}")
    painter = star_painter(pipeline.tables)
    if painter.colours is not None:
        raise ConfigError(f"dust: expected a screen or null {what}, got dust of kind particles; {remedy}")
    if painter.outliers is not None:
        raise ConfigError(
            f"engine.velocity_range: expected the largest speed in km/s {what}, got null with stars so fast that they "
            f"would be painted singly; give it, e.g. 1000 km/s"
        )
    taken = {
        "fit.polynomial": settings.polynomial is not None,
        "fit.noise_scale": settings.noise_scale is not None,
        "fit.model_error": settings.model_error is not None,
        "fit.likelihood": not settings.likelihood.plain,
    }
    for name, is_taken in taken.items():
        if is_taken:
            raise ConfigError(f"{name}: expected the default {what}, got a section; {remedy}")
    for number in solved:
        name, component = f"{GALAXY}{base.names[number]}", base.components[number]
        for own, why in (("mass", "follows from the weights"), ("population.weights", "is solved for")):
            if f"{name}.{own}" in settings.free:
                raise ConfigError(
                    f"fit.free.{name}.{own}: expected no prior {what}, since it {why}, got one; leave it out of "
                    f"fit.free, or give the population's weights"
                )
        if isinstance(component.dispersion, FromHeight):
            raise ConfigError(
                f"{name}.dispersion: expected a dispersion that does not depend on the mass {what}, got 'from_height'; "
                f"take a number or 'exponential'"
            )

