"""Where the values of free parameters may be, by the sketch of a cube: latents for a search to begin near.

Of what a cube shows at a glance the values follow by one formula each, with a scatter as wide as the formula is rough;
all other parameters are drawn from their priors. The loss of each guess decides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.posterior.fit_model import GALAXY
from rubix_like.inference.posterior.free import Free, FreeParameter
from rubix_like.inference.search.sketch import Sketch

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


INCLINATION: str = "observation.inclination"
POSITION_ANGLE: str = "observation.position_angle"
OFFSET: str = "observation.offset"
VELOCITY_OFFSET: str = "observation.velocity_offset"
SCALE_LENGTH: str = GALAXY + "disc_scale_length"
ROTATION: str = GALAXY + "rotation_velocity"

SHOWN: frozenset[str] = frozenset({INCLINATION, POSITION_ANGLE, OFFSET, VELOCITY_OFFSET, SCALE_LENGTH, ROTATION})
"""Parameters that can be guessed from the cube."""

_OF_ALL = (SCALE_LENGTH, INCLINATION, POSITION_ANGLE, OFFSET, ROTATION)
"""What components are guessed by, in the order of `Seen`."""

_OBSERVED = {"inclination": INCLINATION, "position_angle": POSITION_ANGLE, "center": OFFSET}
"""A component's own key -> the parameter of the observation that it is added to."""

_MOST = 1.5
"""Largest latent of a parameter that is drawn from its prior."""

_EDGE = 2.0
"""Largest latent of one that is not: a uniform prior still has 14 % of its slope there."""

_THICKNESS = 0.2
"""Axis ratio of a disc seen edge-on (Hubble 1926, ApJ 64, 321)."""

_THINNEST = 0.05
"""Part of the PSF's variance that is left, at least, where that of the light is not larger."""

_TWIN, _BY_LIGHT, _FROM_PRIOR = 0.15, 0.5, 0.25
"""Shares: of position angles that are turned by half a turn although the receding side is known; of those that follow
the light's axis and not the velocities; of guesses that are draws from the prior."""

_ANGLE_SCATTER, _TILT_SCATTER = 10.0, 8.0
"""Scatter of guessed position angles and inclinations, deg."""

_SIZE_SCATTER, _CENTRE_SCATTER, _SYSTEMIC_SCATTER = 0.1, 0.1, 15.0
"""Scatter of scale lengths (dex), centres (units of the light's extent) and velocities (km/s)."""

_UNSMEARED = 3.0
"""What a rotation is divided by, at most, when it is averaged over half a disc and smeared by a PSF."""

_LEAST_SINE = 0.3
"""Least sine of an inclination by which a velocity is divided."""


@dataclass(frozen=True)
class Surroundings:
    """What a sketch is compared with: arcsec of a kpc, standard deviation of the PSF (arcsec), the velocity of the
    whole galaxy (km/s; NaN: not known), and how the galaxy lies where its angles are not free."""

    arcsec_per_kpc: float
    psf_sigma: float
    systemic: float
    pose: Pose = field(default_factory=Pose)


def shown_among(names: Iterable[str]) -> bool:
    """Whether the cube shows any of these parameters."""
    names = tuple(names)
    return bool(SHOWN & set(names) or components_shown(names))


def guesses(
    sketch: Sketch, around: Surroundings, free: Free, generator: np.random.Generator, count: int
) -> Float[ndarray, "count latent"]:
    """Latents of guesses; every fourth is a draw from the prior."""
    prior = generator.standard_normal((count, free.n_latent))
    values = _values(sketch, around, generator, count)
    if only_against(free):
        values[POSITION_ANGLE] = values[POSITION_ANGLE] + 180.0
    size, inclination, angle, centre, speed = (values[name] for name in _OF_ALL)
    observed = frozenset(own for own, name in _OBSERVED.items() if name in free.names)
    seen = Seen(size, inclination, angle, centre, speed, observed)
    values |= component_values(free, seen, around.pose, generator)
    own_prior = np.asarray(free.own_normals(prior))
    latent = np.clip(own_prior, -_MOST, _MOST)
    for parameter, own in zip(free.parameters, free.places.values(), strict=True):
        if parameter.name in values:
            given = np.reshape(values[parameter.name], (count, -1))
            given = _turned(parameter, given) if parameter.name.endswith(".position_angle") else given
            latent[:, own] = _latents(parameter, given, latent[:, own])
    drawn = np.arange(count) % round(1 / _FROM_PRIOR) == round(1 / _FROM_PRIOR) - 1
    return np.asarray(free.of_own_normals(np.where(drawn[:, None], own_prior, latent)))


def _values(
    sketch: Sketch, around: Surroundings, generator: np.random.Generator, count: int
) -> dict[str, Float[ndarray, "count ..."]]:
    """Values of every parameter that the cube shows, with their scatter."""
    tilt = inclination_of(sketch, around) + _TILT_SCATTER * generator.standard_normal(count)
    sine = np.maximum(np.abs(np.sin(np.deg2rad(tilt))), _LEAST_SINE)
    centre = sketch.centre + _CENTRE_SCATTER * sketch.major * generator.standard_normal((count, 2))
    speed = sketch.rotation * _UNSMEARED ** generator.random(count) / sine
    size = scale_length_of(sketch, around) * 10 ** (_SIZE_SCATTER * generator.standard_normal(count))
    return {
        INCLINATION: np.abs(tilt),
        POSITION_ANGLE: _angles(sketch, generator, count),
        OFFSET: centre,
        VELOCITY_OFFSET: around.systemic + _SYSTEMIC_SCATTER * generator.standard_normal(count),
        SCALE_LENGTH: size,
        ROTATION: speed,
    }


def scale_length_of(sketch: Sketch, around: Surroundings) -> float:
    """Scale length of an exponential disc (kpc): sqrt(major^2 - psf^2) / 1.1615, of the light's standard deviation and
    the PSF's."""
    return float(np.sqrt(_variances(sketch, around)[0])) / ADAPTIVE / around.arcsec_per_kpc


def inclination_of(sketch: Sketch, around: Surroundings) -> float:
    """cos^2 i = (q^2 - q_0^2) / (1 - q_0^2) (Hubble 1926), deg; q: the light's axis ratio without the PSF."""
    long, short = _variances(sketch, around)
    square = (short / long - _THICKNESS**2) / (1 - _THICKNESS**2)
    return float(np.rad2deg(np.arccos(np.sqrt(np.clip(square, 0, 1)))))


def _variances(sketch: Sketch, around: Surroundings) -> tuple[float, float]:
    """Along both axes, without the PSF's."""
    smallest = _THINNEST * max(around.psf_sigma, _THINNEST * sketch.major) ** 2
    long, short = (max(own**2 - around.psf_sigma**2, smallest) for own in (sketch.major, sketch.minor))
    return long, short


def _angles(sketch: Sketch, generator: np.random.Generator, count: int) -> Float[ndarray, " count"]:
    """Position angles: of the receding side, and of the light's axis on that side; both ends of the axis, with equal
    chances, where it is not known which recedes."""
    by_light = np.full(count, sketch.axis_angle)
    turn = generator.random(count)
    if np.isnan(sketch.receding_angle):
        angle = by_light + np.where(turn < 0.5, 180.0, 0.0)
    else:
        by_light += 180.0 * np.round((sketch.receding_angle - sketch.axis_angle) / 180.0)
        angle = np.where(generator.random(count) < _BY_LIGHT, by_light, sketch.receding_angle)
        angle += np.where(turn < _TWIN, 180.0, 0.0)
    return angle + _ANGLE_SCATTER * generator.standard_normal(count)


def _turned(parameter: FreeParameter, angle: Float[ndarray, "count 1"]) -> Float[ndarray, "count 1"]:
    """The angles, turned by whole turns into the prior, or by half a turn where that has only the axis' other end."""
    low, high = (np.asarray(parameter.prior.value(np.asarray(end))) for end in (-_EDGE, _EDGE))
    middle = np.asarray(parameter.prior.value(np.asarray(0.0)))
    nearest = angle - 360.0 * np.round((angle - middle) / 360.0)
    other = nearest - 180.0 * np.sign(nearest - middle)
    outside = (nearest < low) | (nearest > high)
    return np.where(outside & (np.abs(other - middle) < np.abs(nearest - middle)), other, nearest)


def _latents(
    parameter: FreeParameter, value: Float[ndarray, "count size"], drawn: Float[ndarray, "count size"]
) -> Float[ndarray, "count size"]:
    """The latents of values, none of them at the edge of its prior; those drawn where there is no value."""
    shape = (-1, *parameter.shape)
    low, high = (np.asarray(parameter.prior.value(np.full(parameter.shape, end))) for end in (-_EDGE, _EDGE))
    inside = np.clip(value.reshape(shape), low, high)
    latent = np.asarray(parameter.prior.latent(inside)).reshape(value.shape)
    return np.where(np.isfinite(latent), np.clip(latent, -_EDGE, _EDGE), drawn)
