"""What a cube of a galaxy shows before anything is fitted: centre, size, shape, and which way it turns.

Rough numbers from moments and cross-correlations, in numpy: a search begins near them, and none of them is a result.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.footprint import Footprint

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
"""Width of the Gaussian that weights spaxels when velocities are compared, in units of the light's own."""


@dataclass(frozen=True)
class Sketch:
    """What the eye sees; NaN where it sees nothing.

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
    return _peaks(0.5 * along**2, shift)


def _peaks(rise: Float[ndarray, "spaxel shift"], shift: Float[ndarray, " shift"]) -> tuple[ndarray, ndarray]:
    """Where each row is highest, by a parabola through three points, and its curvature^-1/2 there; none at an end."""
    top = np.clip(np.argmax(rise, axis=1), 1, len(shift) - 2)
    row, step = np.arange(len(rise)), shift[1] - shift[0]
    before, middle, after = (rise[row, top + move] for move in (-1, 0, 1))
    curvature = np.maximum(2 * middle - before - after, np.finfo(float).tiny)
    found = shift[top] + step * np.clip(0.5 * (after - before) / curvature, -1, 1)
    inside = (middle >= before) & (middle >= after) & (middle > 0)
    return found, np.where(inside, step / np.sqrt(curvature), np.inf)


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
