"""Components of a fit whose populations are free-form: what is planned for them before the fit."""

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from rubix_like.config import RunConfig, load_config
from rubix_like.config.readers.component_kinds import FreeFormPopulation
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.engine.basis import BasisPainter
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.galaxy.components.populations import FreeFormStars, SingleStars
from rubix_like.galaxy.components.rotation import FromHeight
from rubix_like.galaxy.components.smooth import SmoothComponent, SmoothGalaxy
from rubix_like.inference.populations.histories import Populations
from rubix_like.inference.populations.mixtures import Mixtures, star_painter
from rubix_like.inference.populations.smoothness import smoothness_rows

_FIRST_STRENGTH = 1.0
"""Of the first search, for weights in units of their mean."""


def solved_numbers(galaxy: SmoothGalaxy) -> tuple[int, ...]:
    """Which components have populations that a fit solves for."""
    return tuple(number for number, component in enumerate(galaxy.components) if stars_of(component) is not None)


def without_spread_ages(galaxy: SmoothGalaxy) -> SmoothGalaxy:
    """The galaxy to choose quadrature points for: those that are solved for shine alike everywhere."""
    one = SingleStars(jnp.asarray(9.5), jnp.asarray(0.02), jnp.zeros(()))
    components = [
        component if stars_of(component) is None else dataclasses.replace(component, population=one)
        for component in galaxy.components
    ]
    return SmoothGalaxy(tuple(components), galaxy.names)


def for_mixtures(config: RunConfig, galaxy: SmoothGalaxy | None) -> RunConfig:
    """The configuration with the method that solving for populations needs; as it is where none are solved for.

    `galaxy`: the components that are given in place of the configuration's.
    """
    if galaxy is None and isinstance(config.galaxy, ComponentsReader):
        kinds = [population.population for population in config.galaxy.components]
        is_solved = any(isinstance(population, FreeFormPopulation) and not population.weights for population in kinds)
    else:
        is_solved = galaxy is not None and bool(solved_numbers(galaxy))
    if not is_solved:
        return config
    if config.engine.method == "direct":
        raise ConfigError(
            "engine.method: expected 'auto' or 'basis' for a free-form population that a fit solves for, got 'direct'"
        )
    return load_config(config, overrides={"engine.method": "basis"})


def mixtures_of(
    base: SmoothGalaxy,
    pipeline: Pipeline,
    settings: FitSettings,
    flux: Float[Array, "y x wave"],
    inverse_sigma: Float[Array, "y x wave"],
) -> Mixtures | None:
    """All that solving for the populations of components needs, given the data; None where none are solved for.

    Raises ConfigError for settings that do not go with it.
    """
    solved = solved_numbers(base)
    if not solved:
        return None
    _check(base, solved, pipeline, settings)
    painter = star_painter(pipeline.tables)
    coefficients, rows, strength, of_row = [], [], [], []
    for place, number in enumerate(solved):
        stars = stars_of(base.components[number])
        assert stars is not None
        coefficients.append(_coefficients(painter, stars))
        axes = np.log10(stars.metallicities), np.array(stars.log_ages)
        rows.append(len(coefficients[-1]) * smoothness_rows(*axes, coefficients[-1][:, 0]))
        of_row += [place] * len(rows[-1])
        strength.append(_FIRST_STRENGTH if stars.smoothness is None else stars.smoothness)
    return Mixtures(
        coefficients=tuple(jnp.asarray(array, flux.dtype) for array in coefficients),
        smoothness=jnp.asarray(scipy.linalg.block_diag(*rows), flux.dtype),
        strength=jnp.asarray(strength, flux.dtype),
        flux=flux,
        inverse_sigma=inverse_sigma,
        of_row=tuple(of_row),
        solved=solved,
        others=tuple(number for number in range(len(base.components)) if number not in solved),
    )


def _coefficients(painter: BasisPainter, stars: FreeFormStars) -> Float[np.ndarray, "node rank"]:
    """The nodes' templates on the basis spectra, between those of the library."""
    log_age, metallicity = stars.nodes
    places = {"age": log_age, "metallicity": np.log10(metallicity)}
    pairs = zip(painter.axes.names, painter.axes.nodes, strict=True)
    corners = painter.axes.corners(tuple(jnp.asarray(places[name], nodes.dtype) for name, nodes in pairs))
    table = np.asarray(painter.coefficients, np.float64)[np.asarray(corners.index)]
    return np.einsum("nc,ncr->nr", np.asarray(corners.weight, np.float64), table)


def with_solved_weights(galaxy: SmoothGalaxy, found: Mapping[str, Populations]) -> SmoothGalaxy:
    """The components whose free-form populations and masses are those that were found."""
    components = list(galaxy.components)
    for number, name in enumerate(galaxy.names):
        stars = stars_of(components[number])
        if stars is not None and name in found:
            mass, dtype = found[name].mass[0], np.asarray(components[number].mass).dtype
            population = dataclasses.replace(stars, weights=np.asarray(mass / mass.sum(), dtype).reshape(-1))
            total = np.asarray(mass.sum(), dtype)
            components[number] = dataclasses.replace(components[number], population=population, mass=total)
    return SmoothGalaxy(tuple(components), galaxy.names)


def stars_of(component: SmoothComponent) -> FreeFormStars | None:
    """The free-form population of a component that is solved for."""
    population = component.population
    return population if isinstance(population, FreeFormStars) and population.is_solved else None


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
        name, component = f"galaxy.{base.names[number]}", base.components[number]
        for key, why in (("mass", "follows from the weights"), ("population.weights", "is solved for")):
            if f"{name}.{key}" in settings.free:
                raise ConfigError(
                    f"fit.free.{name}.{key}: expected no prior {what}, since it {why}, got one; leave it out of "
                    f"fit.free, or give the population's weights"
                )
        if isinstance(component.dispersion, FromHeight):
            raise ConfigError(
                f"{name}.dispersion: expected a dispersion that does not depend on the mass {what}, got 'from_height'; "
                f"take a number or 'exponential'"
            )
