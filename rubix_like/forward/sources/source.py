"""Sources of light: particles of a kind, the templates that they shine as, and a painter."""

import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.arguments import plug_in_named, returned
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.config.sections.nebular import AgnSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy, Gas
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.dust_curves import find_curve
from rubix_like.physics.templates import A_V, A_V_BIRTH, LineTemplates, Templates, behind_dust

_LEAVING = 0.1
"""dex of the age within which stars leave their birth clouds."""

_YEARS_PER_MYR = 1e6

_Shining = TypeVar("_Shining", Templates, LineTemplates)


class DustInFront(eqx.Module):
    """A(V) = `dust.opacity` x the column of dust in front of a particle + `dust.a_v_birth` x its share of young stars.

    `log_birth_age`: log10 of the age (yr) up to which stars are in their birth clouds (Charlot & Fall 2000, ApJ 539,
    718; over the next 0.1 dex they leave them). `has_birth_clouds`: the second term is a separate layer, by another
    curve.
    """

    log_birth_age: Float[Array | ndarray, ""]
    has_birth_clouds: bool = eqx.field(static=True)

    @classmethod
    def of(cls, setup: Setup) -> "DustInFront | None":
        """The dust of a run; None unless it is of kind particles and the pipeline sums up columns of it."""
        dust = _settings(setup)
        if dust is None:
            return None
        return cls(np.asarray(np.log10(dust.birth_age * _YEARS_PER_MYR)), dust.has_birth_clouds)

    def young(self, log_age: Float[Array, " particle"]) -> Float[Array, " particle"]:
        """The share of each star's light (log10 age in yr) that comes through its birth cloud: 1, or 0 for old ones."""
        return jnp.clip((self.log_birth_age + _LEAVING - log_age) / _LEAVING, 0.0, 1.0)

    def dim(self, scene: Scene, parameters: Parameters, young: Float[Array, " particle"] | None = None) -> Scene:
        """The scene with the coordinate A(V) (mag); `young`: how much of the birth clouds' (None: nothing)."""
        a_v = parameters.dust.opacity * scene.fields[DUST_COLUMN].at(scene.position)
        birth = jnp.zeros_like(a_v) if young is None else parameters.dust.a_v_birth * young
        layers = {A_V: a_v, A_V_BIRTH: birth} if self.has_birth_clouds else {A_V: a_v + birth}
        return replace(scene, coordinates={**scene.coordinates, **layers})


def seen_through_dust(templates: _Shining, setup: Setup) -> _Shining:
    """A source's templates as its particles are seen: behind the run's dust of kind particles, or unchanged."""
    dust = _settings(setup)
    if dust is None:
        return templates
    curve = functools.partial(find_curve(dust.curve), r_v=dust.resolved_r_v, slope=dust.slope)
    clouds = None
    if dust.has_birth_clouds:
        birth_curve = find_curve(dust.resolved_birth_curve)
        clouds = functools.partial(birth_curve, r_v=dust.resolved_birth_r_v, slope=dust.birth_slope)
    return behind_dust(templates, curve, dust.largest, clouds)


def _settings(setup: Setup) -> ParticleDustSettings | None:
    dust = setup.config.dust
    return dust if isinstance(dust, ParticleDustSettings) and setup.pipeline.has_field(DUST_COLUMN) else None


Kind = Literal["stars", "gas"]
"""A kind of a galaxy's particles, by its name in `Galaxy`."""

Rotation = Float[Array | ndarray, "3 3"]
"""Rotation matrix to the body axes of a galaxy."""

Scale = Float[Array | ndarray, ""]
"""arcsec per kpc."""


class ReaderWords(NamedTuple):
    """Words for the error of a galaxy without the particles: what reads them, and what to do instead."""

    what: str
    remedy: str


class AbstractSource(eqx.Module):
    """Particles that shine: the stars of a galaxy, or an emission line of its gas.

    `kind` says which particles of the galaxy it reads, `plan` what they shine as and how they are painted, `scene` how
    much each of them shines and where between the templates it lies. Its `painter` sums their light into a partial,
    which one psum adds up over devices. Each source of a pipeline has a separate plan, painter and counters. A
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
        """The source for one run; its painter is `build_painter(plan, setup)` or another one."""

    @abstractmethod
    def scene(self, particles: Any, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
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
        """Dark particles that stand for those it reads in a galaxy without any; None where such a galaxy is refused."""
        return None


class AbstractDimmedSource(AbstractSource):
    """A source whose particles shine through the dust of kind particles in front of them, where the run has any."""

    dust: eqx.AbstractVar[DustInFront | None]

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The field of columns of dust, where the run has dust of kind particles."""
        return () if self.dust is None else (DUST_COLUMN,)

    def dimmed(self, scene: Scene, parameters: Parameters, young: Float[Array, " particle"] | None = None) -> Scene:
        """The scene behind its dust; `young` as in `DustInFront.dim`."""
        return scene if self.dust is None else self.dust.dim(scene, parameters, young)


def scene_of(source: AbstractSource, particles: Any, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
    """A source's `scene` of some particles; raises ConfigError, which names the source, where it returns none."""
    call = f"source {type(source).__name__}: `scene`"
    with plug_in_named(call, source):
        return returned(source.scene(particles, alignment, arcsec_per_kpc), Scene, call, "a Scene (by to_scene)")


@runtime_checkable
class ReadsParticles(Protocol):
    """A source, a field or maps: sums over particles of one kind."""

    kind: ClassVar[Kind]
    words: ClassVar[ReaderWords]

    def absent(self, galaxy: Galaxy) -> Any:
        """Particles that stand for those it reads in a galaxy without any; None where such a galaxy is refused."""
        ...


def particles_of(readers: Sequence[ReadsParticles], galaxy: Galaxy) -> tuple[Any, ...]:
    """The particles that each of some readers reads; raises ValueError where the galaxy has none of the kind."""
    found = []
    for reader in readers:
        if reader.kind not in get_args(Kind):
            kinds = " or ".join(map(repr, get_args(Kind)))
            raise ConfigError(f"{type(reader).__name__}.kind must be {kinds}, got '{reader.kind}'")
        given = getattr(galaxy, reader.kind)
        found.append(reader.absent(galaxy) if given is None else given)
        if found[-1] is None:
            raise ValueError(
                f"galaxy.{reader.kind}: expected particles for {reader.words.what}, got none; take a galaxy with "
                f"{reader.kind} (rubix-like inspect FILE says what that of a file lacks), or {reader.words.remedy}"
            )
    return tuple(found)


CORE: float = 0.1
"""Share of the radius within which all gas counts as about equally far: simulations do not resolve it."""


def covered(gas: Gas, radius: Float[Array | ndarray, ""]) -> Float[Array, " particle"]:
    """How much of a nucleus' sky the gas in each particle covers, in an arbitrary unit.

    Clouds of one column density that absorb all ionising light that falls on them: m / (r^2 + (0.1 R)^2) within the
    radius R (kpc), none beyond, by the mass m (Msun) and the distance r (kpc) from the centre.
    """
    square = jnp.sum(jnp.asarray(gas.position) ** 2, axis=1)
    share = jnp.asarray(gas.mass) / (square + (CORE * radius) ** 2)
    return jnp.where(square > radius**2, jnp.zeros_like(share), share)  # not where it is NaN, which is to be counted


def agn_settings(setup: Setup) -> AgnSettings:
    """The section `nebular.agn`; raises ConfigError where a run has none."""
    nebular = setup.config.nebular
    if nebular is None or nebular.agn is None:
        raise ConfigError(
            "nebular.agn: expected the section for a pipeline that paints an active nucleus, got null; add for example "
            "nebular: {agn: {log_luminosity: 44}}"
        )
    return nebular.agn
