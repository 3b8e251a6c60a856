"""The continuous numbers of a run that can be changed, or fitted, without a new compilation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from rubix_like.config import ObservationSettings, RunConfig
from rubix_like.instrument.pointing import Pointing
from rubix_like.instrument.psf import PSFParameters


class ObservationParameters(eqx.Module):
    """`observation.*`: inclination and position_angle in degrees (None: the axes of the arrays are kept), offset
    (East, North) in arcsec of the galaxy's centre from the field's, velocity_offset in km/s, field_angle in degrees
    (None: North is up)."""

    inclination: Float[Array, ""] | None
    position_angle: Float[Array, ""] | None
    offset: Float[Array, "2"]
    velocity_offset: Float[Array, ""]
    field_angle: Float[Array, ""] | None


class InstrumentParameters(eqx.Module):
    """`instrument.*`; psf is None where it is switched off."""

    psf: PSFParameters | None


class DustParameters(eqx.Module):
    """`dust.*`: a_v, the attenuation in V in mag."""

    a_v: Float[Array, ""]


class Parameters(eqx.Module):
    """Array leaves under the YAML's dotted names, e.g. `parameters.observation.inclination`; no dust: None."""

    observation: ObservationParameters
    instrument: InstrumentParameters
    dust: DustParameters | None

    @classmethod
    def build(cls, config: RunConfig, dtype: str) -> "Parameters":
        """The values of a configuration."""
        observation = config.observation
        angles = (observation.inclination, observation.position_angle)
        if config.resolved_align == "none" and angles == (None, None):
            inclination = position_angle = None
        else:
            inclination, position_angle = (jnp.asarray(angle or 0.0, dtype) for angle in angles)
        psf = config.instrument.psf
        return cls(
            observation=ObservationParameters(
                inclination=inclination,
                position_angle=position_angle,
                offset=jnp.asarray(observation.offset, dtype),
                velocity_offset=jnp.asarray(observation.velocity_offset, dtype),
                field_angle=jnp.asarray(observation.field_angle or 0.0, dtype) if is_turned(observation) else None,
            ),
            instrument=InstrumentParameters(psf=None if psf is None else PSFParameters.build(psf, dtype)),
            dust=None if config.dust is None else DustParameters(jnp.asarray(config.dust.a_v, dtype)),
        )


def is_turned(observation: ObservationSettings) -> bool:
    """Whether the field of an observation, or that of any of its pointings, has an angle (also one of 0)."""
    angles = (observation.field_angle, *(pointing.field_angle for pointing in observation.pointings or ()))
    return any(angle is not None for angle in angles)


def displaced(parameters: Parameters, pointing: Pointing) -> Parameters:
    """The parameters of the whole observation as seen from one field of it: the offset of the galaxy, and the angle."""
    observation = parameters.observation
    offset = observation.offset - jnp.asarray(pointing.offset, observation.offset.dtype)
    parameters = eqx.tree_at(lambda p: p.observation.offset, parameters, offset)
    if observation.field_angle is None:
        return parameters
    angle = observation.field_angle + jnp.asarray(pointing.turn, observation.field_angle.dtype)
    return eqx.tree_at(lambda p: p.observation.field_angle, parameters, angle)
