"""Where the fibres of a bundle lie in each exposure."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.fibre_settings import FibreSettings
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.instrument.fibres.refraction import displacements

Places = Float[ndarray, "fibre 2"]


def fibre_places(settings: FibreSettings, bins: WavelengthBins | None = None) -> FibrePlaces:
    """The fibres that work, exposure after exposure, in the order of their numbers; with `bins` also how far refraction
    moves their light."""
    places = _turned(bundle_places(settings), settings.angle)
    number = np.setdiff1d(np.arange(1, len(places) + 1), np.asarray(settings.dead, dtype=np.int64))
    offsets = np.asarray(settings.dithers)
    n_exposure, n_fibre = len(offsets), len(number)
    every = (places[number - 1][None, :, :] + offsets[:, None, :]).reshape(-1, 2)
    exposure = np.repeat(np.arange(1, n_exposure + 1), n_fibre)
    ones = (1.0,) * n_exposure
    moved = None
    if settings.refraction is not None and bins is not None:
        moved = displacements(settings.refraction.of_exposures(n_exposure), bins, bins.wavelength)
    return FibrePlaces(
        x=every[:, 0],
        y=every[:, 1],
        number=np.tile(number, n_exposure),
        exposure=exposure,
        seeing=np.repeat(np.asarray(settings.seeing or ones), n_fibre),
        transparency=np.repeat(np.asarray(settings.transparency or ones), n_fibre),
        radius=settings.diameter / 2,
        bundle=settings.bundle,
        moved=moved,
    )


def bundle_places(settings: FibreSettings) -> Places:
    """(x, y) in arcsec of every fibre of the bundle from its middle, before it is turned: x East, y North.

    hexagon: rows from South to North, each from East to West, corners East and West. circles: from the middle outwards,
    each from North through East.
    """
    if settings.positions is not None:
        return np.asarray(settings.positions, dtype=np.float64)
    rings, pitch = settings.rings, settings.pitch
    assert rings is not None
    assert pitch is not None
    return pitch * (hexagon(rings) if settings.arrangement == "hexagon" else circles(rings))


def hexagon(rings: int) -> Places:
    """The points of a triangular grid of unit distance within `rings` steps of its middle."""
    rows = []
    for row in range(-rings, rings + 1):
        length = 2 * rings + 1 - abs(row)
        x = (length - 1) / 2 - np.arange(length)
        rows.append(np.stack([x, np.full(length, row * np.sqrt(0.75))], axis=1))
    return np.concatenate(rows)


def circles(rings: int) -> Places:
    """The middle, and 6 k points on the circle of radius k."""
    found = [np.zeros((1, 2))]
    for ring in range(1, rings + 1):
        angle = np.arange(6 * ring) * (2 * np.pi / (6 * ring))
        found.append(ring * np.stack([np.sin(angle), np.cos(angle)], axis=1))
    return np.concatenate(found)


def _turned(places: Places, angle: float) -> Places:
    """Places turned from +y (North) through +x (East) by an angle in deg."""
    sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    return np.stack([places[:, 0] * cosine + places[:, 1] * sine, places[:, 1] * cosine - places[:, 0] * sine], axis=1)
