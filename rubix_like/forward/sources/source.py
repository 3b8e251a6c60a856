"""What a source of light is: particles of a kind, the templates that they shine as, and a painter."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.settings import AbstractSettings
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.scene import Scene

Kind = Literal["stars", "gas"]
"""A kind of a galaxy's particles, by its name in `Galaxy`."""


class ReaderWords(NamedTuple):
    """Words for the error of a galaxy without the particles: what reads them, and what to do instead."""

    what: str
    remedy: str


class AbstractSource(eqx.Module):
    """Particles that shine: the stars of a galaxy, or an emission line of its gas.

    `kind` says which particles of the galaxy it reads, `plan` what they shine as and how they are painted, `scene` how
    much each of them shines and where between the templates it lies. Its `painter` sums their light into a partial,
    which one psum adds up over devices. Each source of a pipeline has a plan, a painter and counters of its own. A
    source that reads fields of the pipeline names them in `reads`, and takes them into account in `shine`, as it does
    its parameters (`section_type`, as in `AbstractSceneStage`).
    """

    kind: ClassVar[Kind]
    words: ClassVar[ReaderWords] = ReaderWords("a source of the pipeline", "take a pipeline without that source")
    reads: ClassVar[tuple[str, ...]] = ()
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
    ) -> Scene:
        """These particles in the observer's frame (by `to_scene`), before the scene stages."""

    def shining(self, particles: Any) -> Bool[Array, " particle"] | None:  # noqa: ARG002
        """Which particles can have light; the others, and those of weight 0, are neither painted nor counted.

        None where all have: to choose takes the time of a tenth of the painting.
        """
        return None

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:  # noqa: ARG002
        """The scene after the scene stages, with amounts and coordinates as `scene.fields` and `parameters` change
        them: unchanged where the source reads none."""
        return scene

    def painter_for(self, parameters: Parameters) -> AbstractPainter:  # noqa: ARG002
        """The painter with these parameters put in, such as a width of lines; `painter` itself where it has none."""
        return self.painter

    def absent(self, galaxy: Galaxy) -> Any:  # noqa: ARG002
        """Dark particles that stand for its own in a galaxy that has none; None where such a galaxy is refused."""
        return None


@runtime_checkable
class ReadsParticles(Protocol):
    """A source, a field or maps: sums over particles of one kind."""

    kind: ClassVar[Kind]
    words: ClassVar[ReaderWords]


@runtime_checkable
class MayBeAbsent(Protocol):
    """A source or a field, which may have something that stands for its particles."""

    def absent(self, galaxy: Galaxy) -> Any:
        """Particles that stand for its own in a galaxy that has none; None where such a galaxy is refused."""
        ...


def particles_of(readers: Sequence[ReadsParticles], galaxy: Galaxy) -> tuple[Any, ...]:
    """The particles that each of some readers reads; raises ValueError where the galaxy has none of the kind."""
    for reader in readers:
        if reader.kind not in get_args(Kind):
            kinds = " or ".join(map(repr, get_args(Kind)))
            raise ConfigError(f"{type(reader).__name__}.kind must be {kinds}, got '{reader.kind}'")
    found = tuple(_particles(reader, galaxy) for reader in readers)
    for reader, particles in zip(readers, found, strict=True):
        if particles is None:
            raise ValueError(
                f"galaxy.{reader.kind}: expected particles for {reader.words.what}, got none; take a galaxy with "
                f"{reader.kind} (rubix-like inspect FILE says what that of a file lacks), or {reader.words.remedy}"
            )
    return found


def _particles(reader: ReadsParticles, galaxy: Galaxy) -> Any:
    particles = getattr(galaxy, reader.kind)
    return reader.absent(galaxy) if particles is None and isinstance(reader, MayBeAbsent) else particles
