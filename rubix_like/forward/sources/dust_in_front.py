"""The dust in front of what shines: the galaxy's own, a column of it for each particle, and young stars' own clouds."""

import functools
from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.dust_curves import CURVES
from rubix_like.physics.templates import A_V, A_V_BIRTH, LineTemplates, Templates, behind_dust

_LEAVING = 0.1
"""dex of the age within which stars leave their birth clouds."""

_YEARS_PER_MYR = 1e6

_Shining = TypeVar("_Shining", Templates, LineTemplates)


class DustInFront(eqx.Module):
    """A(V) = `dust.opacity` x the column of dust in front of a particle + `dust.a_v_birth` x its share of young stars.

    `log_birth_age`: log10 of the age (yr) up to which stars are in their birth clouds (Charlot & Fall 2000, ApJ 539,
    718; over the next 0.1 dex they leave them). `has_birth_clouds`: the second term is a layer of its own, by another
    curve.
    """

    log_birth_age: Float[Array | ndarray, ""]
    has_birth_clouds: bool = eqx.field(static=True)

    @classmethod
    def of(cls, setup: Setup) -> "DustInFront | None":
        """That of a run; None unless its dust is of kind particles and its pipeline sums up columns of it."""
        dust = _settings(setup)
        if dust is None:
            return None
        return cls(np.asarray(np.log10(dust.birth_age * _YEARS_PER_MYR)), dust.has_birth_clouds)

    @property
    def reads(self) -> tuple[str, ...]:
        """The field of columns."""
        return (DUST_COLUMN,)

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
    curve = functools.partial(CURVES.find(dust.curve), r_v=dust.resolved_r_v, slope=dust.slope)
    clouds = None
    if dust.has_birth_clouds:
        birth_curve = CURVES.find(dust.resolved_birth_curve)
        clouds = functools.partial(birth_curve, r_v=dust.resolved_birth_r_v, slope=dust.birth_slope)
    return behind_dust(templates, curve, dust.largest, clouds)


def _settings(setup: Setup) -> ParticleDustSettings | None:
    dust = setup.config.dust
    return dust if isinstance(dust, ParticleDustSettings) and setup.pipeline.has_field(DUST_COLUMN) else None
