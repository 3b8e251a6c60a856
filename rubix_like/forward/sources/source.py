"""What a source of light is: particles of a kind, the templates that they shine as, and a painter."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.settings import AbstractSettings
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.scene import Scene

Kind = Literal["stars", "gas"]
"""A kind of a galaxy's particles, by its name in `Galaxy`."""


class AbstractSource(eqx.Module):
    """Particles that shine: the stars of a galaxy, or an emission line of its gas.

    `kind` says which particles of the galaxy it reads, `plan` what they shine as and how they are painted, `scene` how
    much each of them shines and where between the templates it lies. Its `painter` sums their light into a partial,
    which one psum adds up over devices. Each source of a pipeline has a plan, a painter and counters of its own.

    `section_type`: settings of a section of its own name (`AbstractSceneStage`).
    """

    kind: ClassVar[Kind]
    section_type: ClassVar[type[AbstractSettings] | None] = None
    painter: eqx.AbstractVar[AbstractPainter]

    @classmethod
    @abstractmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """Its templates, method and velocities (by `plan_source`); raises ConfigError for options it does not know."""

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "AbstractSource":
        """The source for one run; its painter is `build_painter(plan, setup)` or one of its own."""

    @abstractmethod
    def scene(
        self,
        particles: Any,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
        parameters: Parameters,
    ) -> Scene:
        """These particles in the observer's frame (by `to_scene`), before the scene stages."""


def particles_of(sources: tuple[AbstractSource, ...], galaxy: Galaxy) -> tuple[Any, ...]:
    """The particles that each source reads; raises ValueError where the galaxy has none of the kind."""
    found = tuple(getattr(galaxy, source.kind) for source in sources)
    for source, particles in zip(sources, found, strict=True):
        if particles is None:
            raise ValueError(
                f"galaxy.{source.kind}: expected particles for a source of the pipeline, got none; take a galaxy with "
                f"{source.kind}, or a pipeline without that source"
            )
    return found
