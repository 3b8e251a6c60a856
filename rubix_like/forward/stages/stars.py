"""Component `stars`: the light of simple stellar populations."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.engine.methods import build_painter
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup
from rubix_like.forward.stages.base import AbstractComponent, refuse_options
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.scene import Scene, to_scene
from rubix_like.physics.template_axes import TemplateAxes

_LOWEST_METALLICITY = 1e-12
"""Keeps the logarithm and its gradient finite at Z = 0; far below any library."""


class StarsComponent(AbstractComponent):
    """Every star particle shines as the SSP of its age and metallicity, per unit of its mass at birth."""

    painter: AbstractPainter

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "StarsComponent":
        """With the painter that `engine.method` names; no options."""
        refuse_options("stars", options)
        library = setup.library
        axes = TemplateAxes((np.log10(library.metallicity), library.log_age), ("metallicity", "age"))
        templates = np.asarray(library.spectra).reshape(axes.n_template, -1)
        return cls(build_painter(templates, axes, setup))

    def particles(self, galaxy: Galaxy) -> Stars:
        """The stars."""
        return galaxy.stars

    def scene(
        self,
        particles: Stars,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
    ) -> Scene:
        """Stars on the body axes, in arcsec."""
        return to_scene(particles, alignment, arcsec_per_kpc)

    def coordinates(self, scene: Scene) -> tuple[Float[Array, " particle"], ...]:
        """(log10 metallicity, log10 age)."""
        return jnp.log10(jnp.maximum(scene.metallicity, _LOWEST_METALLICITY)), scene.log_age
