"""Guesses of free parameters by the sketch of a cube: latents for a search to begin near.

The sketch shows centre, size, shape, and which way a galaxy turns, by moments and cross-correlations in numpy. Of what
it shows the values follow by one formula each, with a scatter as wide as the formula is rough; all other parameters are
drawn from their priors. The loss of each guess decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.footprint import Footprint
from rubix_like.forward.parameters import Parameters
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    AbstractParticleSource,
    ComponentsSource,
    Free,
    FreeParameter,
)
from rubix_like.inference.posterior.free_parameters import declarations_of

FASTEST: float = 1000.0
"""Largest shift that is tried, km/s."""

_SHIFT_STEP = 20.0
"""Between shifts, km/s."""

_DEGREE = 4
"""Degree of the Legendre polynomial that stands for a spectrum's continuum."""

_LEAST_BINS = 3 * _DEGREE
"""Least number of bins that must be covered at every shift."""

_ROUNDS = 60
"""Most rounds of the iteration for the moments; a round galaxy takes about 15."""

_LINES = 12
"""Through the centre, that part the field into halves."""

_KNOWN = 3.0
"""Velocity of one half against the other, in units of its error, from which on it says how the galaxy lies."""

_REACH = 2.0
"""Width of the Gaussian that weights spaxels when velocities are compared, in units of that of the light."""


@dataclass(frozen=True)
class Sketch:
    """The light, motions and turn of a cube as the eye sees them; NaN where it sees nothing.

    `centre`: East and North of the field's centre (arcsec). `major`, `minor`: standard deviations along the axes of the
    light's ellipse, as observed (arcsec). `axis_angle`: of its major axis; `receding_angle`: of the side that recedes
    (deg, North through East). `rotation`: how fast that half recedes from the mean (km/s).
    `certainty`: that speed in units of its error (0: not known). `spectrum`: sum over all spaxels; `weight`: of its
    bins.
    """

    centre: Float[ndarray, "2"]
    major: float
    minor: float
    axis_angle: float
    receding_angle: float
    rotation: float
    certainty: float
    spectrum: Float[ndarray, " wave"]
    weight: Float[ndarray, " wave"]


def sketch_of(
    flux: Float[ndarray, "y x wave"],
    inverse_sigma: Float[ndarray, "y x wave"],
    wavelength: Float[ndarray, " wave"],
    footprint: Footprint,
    field_angle: float = 0.0,
) -> Sketch:
    """The sketch of a cube; `flux` and `inverse_sigma` are 0 where a voxel says nothing; `field_angle`: deg, of +y."""
    used = inverse_sigma > 0
    count = used.sum(axis=2)
    image = flux.sum(axis=2) / np.maximum(count, 1)
    place = places(footprint, field_angle)
    centre, covariance = moments(image.reshape(-1), place, footprint.pixel_scale)
    size, axes = np.linalg.eigh(covariance)
    spectra, whole = flux.reshape(-1, len(wavelength)), (2 * count > count.max()).reshape(-1)
    weight = np.einsum("yxw,yxw->w", inverse_sigma, inverse_sigma) / np.maximum(used.sum(axis=(0, 1)), 1)
    offset = place - centre
    near = whole * np.exp(-0.5 * np.einsum("pi,ij,pj->p", offset, np.linalg.inv(covariance), offset) / _REACH**2)
    receding, rotation, certainty = turning(spectra, near, weight, wavelength, offset)
    return Sketch(
        centre=centre,
        major=float(np.sqrt(size[1])),
        minor=float(np.sqrt(size[0])),
        axis_angle=angle_of(axes[:, 1]),
        receding_angle=receding,
        rotation=rotation,
        certainty=certainty,
        spectrum=whole @ spectra,
        weight=weight,
    )


def places(footprint: Footprint, field_angle: float) -> Float[ndarray, "spaxel 2"]:
    """East and North (arcsec) of the field's centre of every spaxel, row by row.

    Columns run to -x; x = East cos a - North sin a, y = East sin a + North cos a for a field with +y at angle a.
    """
    x, y = np.meshgrid(*footprint.centres())
    cos, sin = np.cos(np.deg2rad(field_angle)), np.sin(np.deg2rad(field_angle))
    return np.stack([x * cos + y * sin, y * cos - x * sin], axis=-1).reshape(-1, 2)


def angle_of(direction: Float[ndarray, "2"]) -> float:
    """Position angle (deg, North through East) of (East, North)."""
    return float(np.rad2deg(np.arctan2(direction[0], direction[1])))


def moments(
    image: Float[ndarray, " spaxel"], place: Float[ndarray, "spaxel 2"], pixel_scale: float
) -> tuple[Float[ndarray, "2"], Float[ndarray, "2 2"]]:
    """Centre and covariance of an image by a Gaussian weight w of the same centre and covariance C (adaptive moments).

    C = 2 sum w I d d^T / sum w I is the covariance of a Gaussian image exactly; the weight keeps noise and the field's
    edges out (Bernstein & Jarvis 2002, AJ 123, 583).
    """
    bright = np.maximum(image, 0) if image.max() > 0 else np.ones_like(image)
    centre = place[np.argmax(image)]
    widest = np.ptp(place, axis=0).max() / 2 + pixel_scale
    covariance = np.eye(2) * (widest / 3) ** 2
    for _ in range(_ROUNDS):
        offset = place - centre
        weight = bright * np.exp(-0.5 * np.einsum("pi,ij,pj->p", offset, np.linalg.inv(covariance), offset))
        centre = weight @ place / weight.sum()
        offset = place - centre
        found = 2 * np.einsum("p,pi,pj->ij", weight, offset, offset) / weight.sum()
        size, axes = np.linalg.eigh(found)
        covariance = (axes * np.clip(size, (pixel_scale / 3) ** 2, widest**2)) @ axes.T
    return centre, covariance


def shifts(
    spectra: Float[ndarray, "spaxel wave"],
    template: Float[ndarray, " wave"],
    weight: Float[ndarray, " wave"],
    wavelength: Float[ndarray, " wave"],
) -> tuple[Float[ndarray, " spaxel"], Float[ndarray, " spaxel"]]:
    """Velocity (km/s, + receding) of each spectrum against a template, and its standard deviation.

    The shift t_v of the template with the highest (s . t_v)^2 / (t_v . t_v), . weighted by the inverse variances and
    with a Legendre polynomial taken off both, over the bins that every shift covers; that is chi^2's fall, so that its
    curvature gives the error.
    """
    good, place = weight > 0, np.log(wavelength)
    reach = FASTEST / SPEED_OF_LIGHT
    inside = good & (place > place[good].min() + reach) & (place < place[good].max() - reach)
    if np.count_nonzero(inside) < _LEAST_BINS:
        return np.full(len(spectra), np.nan), np.full(len(spectra), np.inf)
    root, position = np.sqrt(np.where(inside, weight, 0)), np.linspace(-1, 1, len(wavelength))
    smooth, _ = np.linalg.qr(np.polynomial.legendre.legvander(position, _DEGREE) * root[:, None])

    def lines(rows: Float[ndarray, "row wave"]) -> Float[ndarray, "row wave"]:
        weighted = rows * root
        return weighted - (weighted @ smooth) @ smooth.T

    shift = np.arange(-FASTEST, FASTEST + _SHIFT_STEP / 2, _SHIFT_STEP)
    shifted = CubicSpline(place[good], template[good])(
        np.where(inside, place, place[inside][0]) - shift[:, None] / SPEED_OF_LIGHT
    )
    shifted = lines(shifted)
    length = np.sqrt(np.maximum(np.sum(shifted**2, axis=1), np.finfo(float).tiny))
    along = np.maximum(lines(spectra) @ (shifted / length[:, None]).T, 0)
    rise = 0.5 * along**2
    top = np.clip(np.argmax(rise, axis=1), 1, len(shift) - 2)
    row, step = np.arange(len(rise)), shift[1] - shift[0]
    before, middle, after = (rise[row, top + move] for move in (-1, 0, 1))  # the peak of a parabola through them
    curvature = np.maximum(2 * middle - before - after, np.finfo(float).tiny)
    found = shift[top] + step * np.clip(0.5 * (after - before) / curvature, -1, 1)
    is_inside = (middle >= before) & (middle >= after) & (middle > 0)
    return found, np.where(is_inside, step / np.sqrt(curvature), np.inf)


def turning(
    spectra: Float[ndarray, "spaxel wave"],
    near: Float[ndarray, " spaxel"],
    weight: Float[ndarray, " wave"],
    wavelength: Float[ndarray, " wave"],
    offset: Float[ndarray, "spaxel 2"],
) -> tuple[float, float, float]:
    """(position angle of the receding side in deg, how fast it recedes in km/s, as the mean over that half, and that
    in units of its error).

    The sums of the spectra on both sides of a line through the centre are shifted against each other by
    2 V cos(a - PA), a the angle of the line's normal. V and PA are those of least squares over many lines; NaN where V
    is within its error. (`near`: how much a spaxel counts; `offset`: East and North of the centre.)
    """
    angle = np.arange(_LINES) * np.pi / _LINES
    side = np.sign(offset @ np.stack([np.sin(angle), np.cos(angle)]))
    share = np.concatenate([np.maximum(side, 0).T, np.maximum(-side, 0).T]) * near
    if not share.any(axis=1).all():  # a line has nothing on one of its sides, as in a cube of one spaxel
        return np.nan, np.nan, 0.0
    velocity, error = shifts(share @ spectra, near @ spectra, weight, wavelength)
    error = error * np.sqrt(np.sum(share**2, axis=1))
    apart, deviation = velocity[:_LINES] - velocity[_LINES:], np.hypot(error[:_LINES], error[_LINES:])
    if not np.isfinite(deviation).all():
        return np.nan, np.nan, 0.0
    east, north = 2 / _LINES * apart @ np.sin(angle), 2 / _LINES * apart @ np.cos(angle)
    certainty = float(np.hypot(east, north) / np.median(deviation))
    if certainty < _KNOWN:
        return np.nan, np.nan, certainty
    return angle_of(np.array([east, north])), float(np.hypot(east, north) / 2), certainty


def shift_of(sketch: Sketch, template: Float[ndarray, " wave"], wavelength: Float[ndarray, " wave"]) -> float:
    """Velocity (km/s, + receding) of the whole cube against a model's sum over all spaxels; NaN where unclear."""
    velocity, error = shifts(sketch.spectrum[None], template, sketch.weight, wavelength)
    return float(velocity[0]) if error[0] < FASTEST else np.nan


_HALF_LIGHT = 1.678
"""Half-light radius of an exponential disc in scale lengths: the solution of (1 + x) exp(-x) = 1/2."""

ADAPTIVE: float = 1.1615
"""Standard deviation by adaptive moments (`sketch.moments`) of an exponential disc's light, in scale lengths R: the
solution s of <r^2 exp(-r^2 / 2 s^2)> = s^2 <exp(-r^2 / 2 s^2)>, averaged over exp(-r / R)."""

_SIZES: Mapping[str, float] = {"scale_length": 1.0, "half_light_radius": _HALF_LIGHT, "width": ADAPTIVE}
"""Lengths in scale lengths of the exponential disc with the same adaptive moments. Those of a Gaussian's light are
its variance; those of a thin ring, seen face-on, its radius squared."""

_AGAINST = 0.25
"""Share of the guesses in which a component turns the other way than the cube as a whole."""


@dataclass(frozen=True)
class Pose:
    """How the observation and the components lie where nothing of it is free: angles in deg, (East, North) in arcsec;
    `own_angles`: position angles of the components, by their names."""

    inclination: float = 0.0
    position_angle: float = 0.0
    offset: tuple[float, float] = (0.0, 0.0)
    own_angles: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Parameters, source: AbstractParticleSource) -> "Pose":
        """The pose of a model with these parameters and particles."""
        observation, own_angles = parameters.observation, {}
        inclination, angle = (float(value or 0) for value in (observation.inclination, observation.position_angle))
        east, north = np.asarray(observation.offset).tolist()
        if isinstance(source, ComponentsSource):
            parts = zip(source.base.names, source.base.components, strict=True)
            own_angles = {name: float(part.position_angle) for name, part in parts}
        return cls(inclination, angle, (east, north), own_angles)


Guesses = Mapping[str, Float[ndarray, "count ..."]]
"""Guesses of the whole galaxy by the role of a parameter, along the first axis: scale length (kpc) of an exponential
disc, inclination, position angle of the receding side (deg), centre (arcsec), rotation (km/s)."""


def component_values(
    free: Free, whole: Guesses, observed: frozenset[str], pose: Pose, generator: np.random.Generator
) -> dict[str, Float[ndarray, "count ..."]]:
    """Values of the components' parameters by name; `observed`: roles of the observation's free parameters.

    Lengths follow from the scale length; a component's angles and centre, where the observation's are not free, are
    the whole galaxy's less those of the pose.
    """
    shown = [
        parameter
        for parameter in free.parameters
        if component_of(parameter.name) and role_of(parameter.name) in SHOWN - observed
    ]
    several = sum(role_of(parameter.name) == "rotation" for parameter in shown) > 1
    turns = "position_angle" in observed
    fixed = {
        "centre": np.asarray(pose.offset),
        "inclination": pose.inclination,
        "position_angle": pose.position_angle,
    }
    values = {}
    for parameter in shown:
        role = role_of(parameter.name)
        if role in _SIZES:
            values[parameter.name] = _SIZES[role] * whole["scale_length"]
        elif role == "rotation":
            values[parameter.name] = _speeds(parameter, free, whole, pose, generator, several=several, turns=turns)
        else:
            values[parameter.name] = whole[role] - fixed[role]
    return values


def _speeds(
    parameter: FreeParameter,
    free: Free,
    whole: Guesses,
    pose: Pose,
    generator: np.random.Generator,
    *,
    several: bool,
    turns: bool,
) -> Float[ndarray, "count ..."]:
    """Speeds of a component; `several`: there are others; `turns`: the observation's position angle is free.

    The sign is that for which the side that is seen to recede does; where the position angle is free it is that of the
    prior's middle. A quarter turns the other way, each component for itself, if its prior has both signs and there are
    several, or the angle is not free.
    """
    component, speed = component_of(parameter.name), whole["rotation"]
    count, is_fixed = len(speed), not turns and f"{GALAXY}{component}.position_angle" not in free.names
    if is_fixed:
        angle = pose.position_angle + pose.own_angles.get(component, 0.0)
        speed = speed * np.where(np.cos(np.deg2rad(whole["position_angle"] - angle)) < 0, -1.0, 1.0)
    if is_fixed or several:
        speed = speed * np.where(generator.random(count) < _AGAINST, -1.0, 1.0)
    low, high = (np.asarray(parameter.prior.value(np.full(parameter.shape, end))) for end in (-2.0, 2.0))
    speeds = np.broadcast_to(speed.reshape(-1, *(1 for _ in parameter.shape)), (count, *parameter.shape))
    speeds = np.where(low >= 0, np.abs(speeds), speeds)
    return np.where(high <= 0, -np.abs(speeds), speeds)


def component_of(name: str) -> str:
    """The component that a parameter belongs to; empty for others."""
    component, _, below = name.removeprefix(GALAXY).partition(".")
    return component if name.startswith(GALAXY) and below else ""


def role_of(name: str) -> str:
    """The role of a parameter in the picture of a galaxy, as it declares; empty for others."""
    declared = declarations_of([name])
    return declared[name].mark.role if name in declared else ""


SHOWN: frozenset[str] = frozenset({*_SIZES, "inclination", "position_angle", "centre", "systemic", "rotation"})
"""Roles of parameters that can be guessed from the cube."""

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
    """The scales that a sketch is compared with: arcsec of a kpc, standard deviation of the PSF (arcsec), the velocity
    of the whole galaxy (km/s; NaN: not known), and how the galaxy lies where its angles are not free."""

    arcsec_per_kpc: float
    psf_sigma: float
    systemic: float
    pose: Pose = field(default_factory=Pose)


def guesses(
    sketch: Sketch, around: Surroundings, free: Free, generator: np.random.Generator, count: int
) -> Float[ndarray, "count latent"]:
    """Latents of guesses; every fourth is a draw from the prior."""
    prior = generator.standard_normal((count, free.n_latent))
    known = _values(sketch, around, generator, count)
    fastest = [
        np.asarray(parameter.prior.value(np.full(parameter.shape, 2.0)))
        for parameter in free.parameters
        if component_of(parameter.name) and role_of(parameter.name) == "rotation"
    ]
    if fastest and all(np.all(speed <= 0) for speed in fastest):
        known["position_angle"] = known["position_angle"] + 180.0
    observed = {name: role_of(name) for name in free.names if not component_of(name)}
    values = {name: known[role] for name, role in observed.items() if role in known}
    values |= component_values(free, known, frozenset(observed.values()), around.pose, generator)
    own_prior = np.asarray(free.own_normals(prior))
    latent = np.clip(own_prior, -_MOST, _MOST)
    for parameter, place in zip(free.parameters, free.places.values(), strict=True):
        if parameter.name in values:
            given = np.reshape(values[parameter.name], (count, -1))
            given = _turned(parameter, given) if role_of(parameter.name) == "position_angle" else given
            latent[:, place] = _latents(parameter, given, latent[:, place])
    drawn = np.arange(count) % round(1 / _FROM_PRIOR) == round(1 / _FROM_PRIOR) - 1
    return np.asarray(free.of_own_normals(np.where(drawn[:, None], own_prior, latent)))


def _values(
    sketch: Sketch, around: Surroundings, generator: np.random.Generator, count: int
) -> dict[str, Float[ndarray, "count ..."]]:
    """Values of every parameter that the cube shows, with their scatter."""
    tilt = inclination_of(sketch, around) + _TILT_SCATTER * generator.standard_normal(count)
    sine = np.maximum(np.abs(np.sin(np.deg2rad(tilt))), _LEAST_SINE)
    centre = sketch.centre + _CENTRE_SCATTER * sketch.major * generator.standard_normal((count, 2))
    rotation = sketch.rotation * _UNSMEARED ** generator.random(count) / sine
    scale_length = scale_length_of(sketch, around) * 10 ** (_SIZE_SCATTER * generator.standard_normal(count))
    by_light, turn = np.full(count, sketch.axis_angle), generator.random(count)
    if np.isnan(sketch.receding_angle):  # both ends of the light's axis, with equal chances
        angle = by_light + np.where(turn < 0.5, 180.0, 0.0)
    else:
        by_light += 180.0 * np.round((sketch.receding_angle - sketch.axis_angle) / 180.0)
        angle = np.where(generator.random(count) < _BY_LIGHT, by_light, sketch.receding_angle)
        angle += np.where(turn < _TWIN, 180.0, 0.0)
    angle = angle + _ANGLE_SCATTER * generator.standard_normal(count)
    return {
        "inclination": np.abs(tilt),
        "position_angle": angle,
        "centre": centre,
        "systemic": around.systemic + _SYSTEMIC_SCATTER * generator.standard_normal(count),
        "scale_length": scale_length,
        "rotation": rotation,
    }


def scale_length_of(sketch: Sketch, around: Surroundings) -> float:
    """sqrt(major^2 - psf^2) / 1.1615, of the light's standard deviation and the PSF's: of an exponential disc, kpc."""
    return float(np.sqrt(_variances(sketch, around)[0])) / ADAPTIVE / around.arcsec_per_kpc


def inclination_of(sketch: Sketch, around: Surroundings) -> float:
    """cos^2 i = (q^2 - q_0^2) / (1 - q_0^2) (Hubble 1926), deg; q: the light's axis ratio without the PSF."""
    long, short = _variances(sketch, around)
    square = (short / long - _THICKNESS**2) / (1 - _THICKNESS**2)
    return float(np.rad2deg(np.arccos(np.sqrt(np.clip(square, 0, 1)))))


def _variances(sketch: Sketch, around: Surroundings) -> tuple[float, float]:
    """Along both axes, without the PSF's."""
    smallest = _THINNEST * max(around.psf_sigma, _THINNEST * sketch.major) ** 2
    long, short = (max(axis**2 - around.psf_sigma**2, smallest) for axis in (sketch.major, sketch.minor))
    return long, short


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
