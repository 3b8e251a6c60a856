"""Source `stars`: the light of simple stellar populations."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rubix_like.cube.meta import Counters, SourceCounters
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan, build_painter
from rubix_like.engine.source_planning import plan_source
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import (
    AbstractDimmedSource,
    DustInFront,
    Kind,
    Rotation,
    Scale,
    seen_through_dust,
)
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Stars
from rubix_like.galaxy.scene import Scene, to_scene
from rubix_like.physics.templates import A_V, A_V_BIRTH

STAR_SOURCE: str = "stars"
"""The source's name in a pipeline."""

LOWEST_METALLICITY: float = 1e-12
"""Keeps the logarithm and its gradient finite at Z = 0; far below any library."""


class StarsSource(AbstractDimmedSource):
    """Every star particle shines as the SSP of its age and metallicity, per unit of its mass at birth, through the
    dust in front of it."""

    painter: AbstractPainter
    dust: DustInFront | None = None
    kind: ClassVar[Kind] = "stars"

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The run's SSP library, painted as `engine` says; no options."""
        refuse_options(STAR_SOURCE, options)
        return plan_source(setup, seen_through_dust(setup.library.templates(), setup), cls.kind)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "StarsSource":  # noqa: ARG003
        """Build the source with the painter of the plan's method."""
        return cls(build_painter(plan, setup), DustInFront.of(setup))

    def shining(self, particles: Stars) -> Bool[Array, " particle"] | None:
        """Emitters of stars, where others are those of gas."""
        return None if particles.line_light is None else ~(jnp.asarray(particles.initial_mass) <= 0)

    def scene(self, particles: Stars, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
        """Stars on the body axes, in arcsec, at their log10 metallicity and log10 age."""
        return star_scene(particles, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The stars behind their dust."""
        young = None if self.dust is None else self.dust.young(scene.coordinates["age"])
        return self.dimmed(scene, parameters, young)


def star_scene(stars: Stars, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
    """Stars on the body axes, in arcsec, with their mass at birth as amount, at their log10 metallicity and age."""
    return to_scene(stars, stars.initial_mass, star_coordinates(stars), alignment, arcsec_per_kpc)


def star_coordinates(stars: Stars) -> dict[str, Float[Array, " particle"]]:
    """The place of each star between the templates of an SSP library: log10 metallicity and log10 age."""
    metallicity = jnp.log10(jnp.maximum(jnp.asarray(stars.metallicity), LOWEST_METALLICITY))
    return {"metallicity": metallicity, "age": jnp.asarray(stars.log_age)}


def star_counters(sources: Mapping[str, SourceCounters]) -> Counters | None:
    """The counters of the stars among those of all sources of a run; None where no stars were painted."""
    counts = sources.get(STAR_SOURCE)
    if counts is None:
        return None
    none = jnp.zeros_like(counts.n_particles)
    return Counters(
        n_particles=counts.n_particles,
        n_outside=counts.n_outside,
        n_clamped_age=counts.n_clamped["age"],
        n_clamped_metallicity=counts.n_clamped["metallicity"],
        n_clamped_a_v=counts.n_clamped.get(A_V, none) + counts.n_clamped.get(A_V_BIRTH, none),
        n_beyond_velocity=counts.n_beyond_velocity,
        n_overflow=counts.n_overflow,
        n_not_finite=counts.n_not_finite,
        mass_total=counts.amount_total,
        mass_outside=counts.amount_outside,
        mass_clamped_age=counts.amount_clamped["age"],
        mass_clamped_metallicity=counts.amount_clamped["metallicity"],
        mass_clamped_a_v=counts.amount_clamped.get(A_V, none) + counts.amount_clamped.get(A_V_BIRTH, none),
    )
