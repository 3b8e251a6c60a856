"""Places of a bundle's fibres in each exposure, and the weights by which their spectra make a cube."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.fibre_settings import FibreCubeSettings, FibreSettings, RefractionSettings
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces, turned
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.instrument.psf_profile import WavelengthNodes
from rubix_like.physics.discs import disc_overlap
from rubix_like.runtime.places import found_at


def cube_weights(settings: FibreCubeSettings, places: FibrePlaces, footprint: Footprint) -> CubeWeights:
    """The map from fibres to spaxels; raises ConfigError where no spaxel is near any fibre."""
    if settings.method == "shepard":
        limit = settings.limit
        assert limit is not None
        assert settings.sigma is not None
        spaxel, fibre, east, north = _pairs(places, footprint, limit)
        square = east**2 + north**2
        near = square < limit**2
        spaxel, fibre, weight = spaxel[near], fibre[near], np.exp(-0.5 * square[near] / settings.sigma**2)
    else:
        assert settings.drop is not None
        radius, half = places.radius * settings.drop, footprint.pixel_scale / 2
        spaxel, fibre, east, north = _pairs(places, footprint, radius + half * np.sqrt(2))
        weight = disc_overlap(east - half, east + half, north - half, north + half, radius)
    sparse, shape = found_at("scipy.sparse:csr_array"), (footprint.n_element, len(places))
    raw = sparse((weight, (spaxel, fibre)), shape=shape)
    total = np.asarray(raw.sum(axis=1)).ravel()
    seen = total > 0
    if not seen.any():
        raise ConfigError(
            f"instrument.fibres: expected fibres near the field of {footprint.sides[0]:g} x {footprint.sides[1]:g} "
            f"arcsec, got none within reach of any spaxel; change instrument.fov or the fibres' positions"
        )
    if settings.coverage is not None:
        seen &= total >= settings.coverage * np.median(total[seen])
    share = np.where(seen, footprint.pixel_scale**2 / places.area / np.where(seen, total, 1.0), 0.0)
    matrix = sparse(raw.multiply(share[:, None]))
    matrix.eliminate_zeros()
    return CubeWeights.of_matrix(matrix, footprint.shape, np.where(seen, total, 0.0).reshape(footprint.shape))


def _pairs(
    places: FibrePlaces, footprint: Footprint, reach: float
) -> tuple[ndarray, ndarray, Float[ndarray, " pair"], Float[ndarray, " pair"]]:
    """Spaxels and fibres whose centres are at most `reach` (arcsec) apart along both axes, and from the fibre's to the
    spaxel's in arcsec (East, North)."""
    x, y = footprint.centres()
    spaxels, fibres, east, north = [], [], [], []
    for fibre in range(len(places)):
        column = np.flatnonzero(np.abs(x - places.x[fibre]) <= reach)
        row = np.flatnonzero(np.abs(y - places.y[fibre]) <= reach)
        rows, columns = np.meshgrid(row, column, indexing="ij")
        spaxels.append((rows * footprint.n_x + columns).ravel())
        fibres.append(np.full(rows.size, fibre))
        east.append(x[columns].ravel() - places.x[fibre])
        north.append(y[rows].ravel() - places.y[fibre])
    return np.concatenate(spaxels), np.concatenate(fibres), np.concatenate(east), np.concatenate(north)


_ARCSEC_PER_RADIAN = 180 * 3600 / np.pi
_MMHG_PER_HPA = 760 / 1013.25
_DEGREE = 8
"""Of the polynomials between nodes, for pieces in which light moves by no more than a FWHM: errors below 1e-5."""


def index_of_air(
    vacuum: Float[ndarray, " wave"], pressure: float, temperature: float, vapour: float
) -> Float[ndarray, " wave"]:
    """n of air at vacuum wavelengths in Angstrom (Filippenko 1982, PASP 94, 715, eqs. 1 to 3; Edlen 1953).

    `pressure` and the `vapour`'s part of it in hPa, `temperature` in deg C. With s = 1 / micron, P and f in mmHg:

        1e6 (n - 1) = (64.328 + 29498.1 / (146 - s^2) + 255.4 / (41 - s^2))
                      P (1 + (1.049 - 0.0157 T) 1e-6 P) / (720.883 (1 + 0.003661 T))
                      - f (0.0624 - 0.000680 s^2) / (1 + 0.003661 T)
    """
    square, mmhg = (1e4 / vacuum) ** 2, pressure * _MMHG_PER_HPA
    standard = 64.328 + 29498.1 / (146.0 - square) + 255.4 / (41.0 - square)
    expansion = 1.0 + 0.003661 * temperature
    dry = standard * mmhg * (1.0 + (1.049 - 0.0157 * temperature) * 1e-6 * mmhg) / (720.883 * expansion)
    wet = vapour * _MMHG_PER_HPA * (0.0624 - 0.000680 * square) / expansion
    return 1.0 + 1e-6 * (dry - wet)


def displacements(
    settings: RefractionSettings, bins: WavelengthBins, wavelength: Float[ndarray, " wave"]
) -> Float[ndarray, "exposure wave 2"]:
    """(x, y) in arcsec by which light of these wavelengths (Angstrom of the bins' medium) lands beside that of
    `settings.wavelength`, in every exposure: (n - n_0) tan z towards the zenith."""
    medium = settings.pressure, settings.temperature, settings.vapour
    every = bins.to_vacuum(np.append(wavelength, settings.wavelength))
    index = index_of_air(every, *medium)
    zenith = np.deg2rad(np.asarray(settings.zenith_distance))[:, None]
    angle = np.deg2rad(np.asarray(settings.zenith_angle))[:, None]
    size = (index[:-1] - index[-1]) * np.tan(zenith) * _ARCSEC_PER_RADIAN
    return np.stack([size * np.sin(angle), size * np.cos(angle)], axis=-1)


def displaced_nodes(
    settings: RefractionSettings,
    bins: WavelengthBins,
    narrowest: float,
    given: WavelengthNodes | None,
) -> WavelengthNodes:
    """Pieces of the bins' range between which light moves by no more than `narrowest` (arcsec), in any exposure; they
    end where those of the PSF itself do."""
    range_ = np.linspace(bins.wavelength[0], bins.wavelength[-1], 4001)
    moved = np.linalg.norm(displacements(settings, bins, range_), axis=-1)
    steps = np.abs(np.diff(moved, axis=1)).max(axis=0)
    along = np.append(0.0, np.cumsum(steps))
    n_piece = max(1, int(np.ceil(along[-1] / narrowest)))
    ends = np.interp(np.linspace(0.0, along[-1], n_piece + 1), along, range_)
    ends, degree = np.concatenate([range_[[0, -1]], ends[1:-1]]), _DEGREE
    if given is not None:
        others, degree = np.asarray(given.ends), max(_DEGREE, given.degree)
        ends = np.concatenate([ends, others[(others > range_[0]) & (others < range_[-1])]])
    return WavelengthNodes(np.unique(ends), degree)


Places = Float[ndarray, "fibre 2"]


def fibre_places(settings: FibreSettings, bins: WavelengthBins | None = None) -> FibrePlaces:
    """The fibres that work, exposure after exposure, in the order of their numbers; with `bins` also how far refraction
    moves their light."""
    x, y = bundle_places(settings).T
    places = np.stack(turned(x, y, settings.angle), axis=1)
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
