"""What the sketch of a cube says of the parameters of smooth components, `galaxy.COMPONENT.KEY`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.posterior.fit_model import GALAXY
from rubix_like.inference.posterior.free import Free, FreeParameter

_HALF_LIGHT = 1.678
"""Half-light radius of an exponential disc in scale lengths: the solution of (1 + x) exp(-x) = 1/2."""

ADAPTIVE: float = 1.1615
"""Standard deviation by adaptive moments (`sketch.moments`) of an exponential disc's light, in scale lengths R: the
solution s of <r^2 exp(-r^2 / 2 s^2)> = s^2 <exp(-r^2 / 2 s^2)>, averaged over exp(-r / R)."""

_SIZES: Mapping[str, float] = {
    "light.scale_length": 1.0,
    "light.effective_radius": _HALF_LIGHT,
    "light.sigma": ADAPTIVE,
    "light.radius": ADAPTIVE,
}
"""Lengths in scale lengths of the exponential disc with the same adaptive moments. Those of a Gaussian's light are its
own variance; those of a thin ring, seen face-on, its radius squared."""

_SPEEDS: tuple[str, ...] = ("rotation.velocity", "rotation.speeds")

_AGAINST = 0.25
"""Share of the guesses in which a component turns the other way than the cube as a whole."""

_ANGLES: tuple[str, ...] = ("inclination", "position_angle", "center")

KEYS: frozenset[str] = frozenset({*_SIZES, *_SPEEDS, *_ANGLES})
"""Parameters of a component that can be guessed from the cube."""


@dataclass(frozen=True)
class Pose:
    """How the observation and the components lie where nothing of it is free: angles in deg, (East, North) in arcsec;
    `own_angles`: position angles of the components, by their names."""

    inclination: float = 0.0
    position_angle: float = 0.0
    offset: tuple[float, float] = (0.0, 0.0)
    own_angles: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """Guesses of the whole galaxy, one in each row: scale length (kpc) of an exponential disc, inclination, position
    angle of the receding side (deg), centre (arcsec), speed (km/s); `observed`: which of the observation's are free."""

    size: Float[ndarray, " count"]
    inclination: Float[ndarray, " count"]
    position_angle: Float[ndarray, " count"]
    centre: Float[ndarray, "count 2"]
    speed: Float[ndarray, " count"]
    observed: frozenset[str]


def components_shown(names: Iterable[str]) -> tuple[str, ...]:
    """Those of some names of parameters that are a component's and can be guessed."""
    return tuple(name for name in names if _key(name) in KEYS)


def component_values(
    free: Free, seen: Seen, pose: Pose, generator: np.random.Generator
) -> dict[str, Float[ndarray, "count ..."]]:
    """Values of the components' parameters by name.

    Lengths follow from the scale length; a component's own angles and centre, where the observation's are not free, are
    what is left of those seen. The sign of a speed is that for which the side that is seen to recede does; where the
    position angle is free it is that of the prior's middle. A quarter turns the other way, each component for itself,
    if its prior has both signs and there are several, or the angle is not free.
    """
    shown = [own for own in free.parameters if _key(own.name) in KEYS and _key(own.name) not in seen.observed]
    several = sum(_key(own.name) in _SPEEDS for own in shown) > 1
    return {own.name: _guess(own, free, seen, pose, generator, several=several) for own in shown}


def _guess(
    parameter: FreeParameter, free: Free, seen: Seen, pose: Pose, generator: np.random.Generator, *, several: bool
) -> Float[ndarray, "count ..."]:
    """Values of one parameter; `several`: whether there are speeds of several components."""
    key = _key(parameter.name)
    if key in _SIZES:
        return _SIZES[key] * seen.size
    if key in _SPEEDS:
        component = parameter.name.removeprefix(GALAXY).partition(".")[0]
        turned = _turns(component, free, seen, pose)
        return _spread(parameter, seen.speed * _way(turned, len(seen.speed), generator, several=several))
    return _left(key, seen, pose)


def only_against(free: Free) -> bool:
    """Whether the priors of all speeds of components are below 0, so that the receding side is the other one."""
    speeds = [own for own in free.parameters if _key(own.name) in _SPEEDS]
    return bool(speeds) and all(np.all(np.asarray(own.prior.value(np.full(own.shape, 2.0))) <= 0) for own in speeds)


def _left(key: str, seen: Seen, pose: Pose) -> Float[ndarray, "count ..."]:
    """What is left of what is seen for a component's own angle or centre."""
    if key == "center":
        return seen.centre - np.asarray(pose.offset)
    if key == "inclination":
        return seen.inclination - pose.inclination
    return seen.position_angle - pose.position_angle


def _turns(component: str, free: Free, seen: Seen, pose: Pose) -> Float[ndarray, " count"] | None:
    """The sign of the speed for which the side that recedes is the one seen; None where the angle is free."""
    if "position_angle" in seen.observed or f"{GALAXY}{component}.position_angle" in free.names:
        return None
    angle = pose.position_angle + pose.own_angles.get(component, 0.0)
    return np.where(np.cos(np.deg2rad(seen.position_angle - angle)) < 0, -1.0, 1.0)


def _way(
    turned: Float[ndarray, " count"] | None, count: int, generator: np.random.Generator, *, several: bool
) -> Float[ndarray, " count"]:
    """The signs of speeds, a share of them turned round where that is another galaxy."""
    way = np.ones(count) if turned is None else turned
    if turned is None and not several:
        return way
    return way * np.where(generator.random(count) < _AGAINST, -1.0, 1.0)


def _spread(parameter: FreeParameter, speed: Float[ndarray, " count"]) -> Float[ndarray, "count ..."]:
    """The speed for every number of a parameter, with the only sign that its prior has, if it has one."""
    low, high = (np.asarray(parameter.prior.value(np.full(parameter.shape, end))) for end in (-2.0, 2.0))
    speeds = np.broadcast_to(speed.reshape(-1, *(1 for _ in parameter.shape)), (len(speed), *parameter.shape))
    speeds = np.where(low >= 0, np.abs(speeds), speeds)
    return np.where(high <= 0, -np.abs(speeds), speeds)


def _key(name: str) -> str:
    """The key below a component's name; empty for other names."""
    return name.removeprefix(GALAXY).partition(".")[2] if name.startswith(GALAXY) else ""
