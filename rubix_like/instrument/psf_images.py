"""Images of PSFs: from files, and of adaptive optics."""

import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.special import gamma, j0, j1, jv, kv

from rubix_like.config import AdaptiveOptics, PSFSettings
from rubix_like.errors import ConfigError
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf_profile import TAPS, WavelengthNodes, cell_offsets, sharpened
from rubix_like.physics.gauss_legendre import leggauss
from rubix_like.runtime.arrays_on_disk import key_of, remembered
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of

_FINE, _BINNED = ("OVERDIST", "OVERSAMP"), ("DET_SAMP", "DET_DIST")
"""Extensions of stpsf (poppy) with images on pixels finer than the detector's, the better one first, and on those."""

_OFF_CENTRE = 0.02
"""Distance of an image's centroid from the middle of the array, in sides of the array, from which on a warning says so;
at least 2 pixels."""

_DEEPEST = 0.01
"""How far below 0, relative to its peak, the sharpened image of a PSF may fall."""


class PSFImage(NamedTuple):
    """Images, the side of their pixels (arcsec), and the planes' wavelengths (Angstrom), None of one plane."""

    planes: Float[ndarray, "plane row column"]
    scale: float
    wavelength: Float[ndarray, " plane"] | None


def load_psf_image(settings: PSFSettings) -> PSFImage:
    """The image of a file, in order of wavelength; what `psf.wavelength` does not say is read from the header.

    Of files of stpsf, webbpsf or poppy: the extension OVERDIST (with the detector's effects) where there is one, else
    OVERSAMP. Raises ConfigError for a file that is missing, has no image of that shape, holds values that are not
    finite or negative, or does not say how large its pixels are or at which wavelengths its planes.
    """
    path = Path(settings.file or "").expanduser()
    try:
        with opened_fits(path, quiet=True) as hdus:
            return _image_of(_chosen(list(hdus), settings.extension, path), settings, path)
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(
            f"instrument.psf.file: expected a readable FITS image, got {path} ({reason_of(error)})"
        ) from error


def _image_of(hdu: Any, settings: PSFSettings, path: Path) -> PSFImage:
    data, header = np.asarray(hdu.data, dtype=np.float64), hdu.header
    data = data[None] if data.ndim == 2 else data
    table = None if settings.wavelength is None else np.asarray(settings.wavelength)
    if table is None and data.ndim == 3 and len(data) > 1:
        table = _wavelengths(header, len(data), path)
    wanted = 1 if table is None else len(table)
    if data.ndim != 3 or len(data) != wanted:
        raise ConfigError(
            f"instrument.psf.file: expected {'one plane' if wanted == 1 else f'{wanted} planes, one per wavelength'}, "
            f"got an array of shape {data.shape} in {path}; give psf.wavelength with one value per plane"
        )
    if not (np.isfinite(data).all() and (data >= 0).all() and (data.sum(axis=(1, 2)) > 0).all()):
        raise ConfigError(f"instrument.psf.file: expected finite values >= 0 with a positive sum, got others in {path}")
    if table is not None and settings.wavelength is None:
        order = np.argsort(table)
        data, table = data[order], table[order]
    return PSFImage(data, settings.file_scale or _scale(header, path), table)


def warn_off_centre(planes: Float[ndarray, "plane row column"], scale: float, path: Path | None) -> None:
    """Log a warning where the light of an image is centred beside the middle of the array, which moves the galaxy."""
    places = [np.arange(size) - (size - 1) / 2 for size in planes.shape[1:]]
    profiles = planes.sum(axis=(0, 2)), planes.sum(axis=(0, 1))
    y, x = (profile @ place / profile.sum() for profile, place in zip(profiles, places, strict=True))
    if np.hypot(x, y) > max(2.0, _OFF_CENTRE * max(planes.shape[1:])):
        logging.getLogger("rubix_like").warning(
            f"instrument.psf.file: the light of {path} is centred ({x:.1f}, {y:.1f}) pixels beside the middle of the "
            f"array: the galaxy is moved by ({x * scale:.3g}, {y * scale:.3g}) arcsec; centre the image"
        )


def _chosen(hdus: list[Any], extension: str | None, path: Path) -> Any:
    found = [hdu for hdu in hdus if isinstance(hdu, IMAGES) and hdu.data is not None]
    if not found:
        raise ConfigError(f"instrument.psf.file: expected an image in {path}, got none")
    by_name = {hdu.name.upper(): hdu for hdu in reversed(found)}
    if extension is not None:
        if extension.upper() not in by_name:
            known = ", ".join(name for name in by_name if name) or "images without names"
            raise ConfigError(f"instrument.psf.extension: expected one with an image, of {known}, got '{extension}'")
        return by_name[extension.upper()]
    if found[0].name.upper() in _BINNED and not set(_FINE) & set(by_name):
        raise ConfigError(
            f"instrument.psf.file: expected an image on pixels finer than the detector's ({' or '.join(_FINE)}), got "
            f"{found[0].name} alone in {path}, which has the box of the detector's pixels in it; compute it with "
            f"output_mode 'both', or say psf.extension: {found[0].name}"
        )
    return next((by_name[name] for name in _FINE if name in by_name), found[0])


def _wavelengths(header: fits.Header, number: int, path: Path) -> Float[ndarray, " plane"] | None:
    """Wavelengths of the planes (Angstrom) by the cards of poppy's `calc_datacube`, in metres; None without any."""
    names = [f"WAVELN{plane:02d}" if number < 100 else f"WVLN{plane:04d}" for plane in range(number)]
    given = [header.get(name) for name in names]
    if not any(value is not None for value in given):
        return None
    values = np.array([float(value) if isinstance(value, int | float) else np.nan for value in given]) * 1e10
    if not (np.isfinite(values).all() and (values > 0).all() and len(np.unique(values)) == number):
        raise ConfigError(
            f"instrument.psf.file: expected a wavelength for each of {number} planes (cards {names[0]} to "
            f"{names[-1]}), all different, got {given} in {path}; give psf.wavelength"
        )
    return values


def _scale(header: fits.Header, path: Path) -> float:
    """Side of a pixel (arcsec) by the header: PIXELSCL, as stpsf writes it, or the world coordinates."""
    side = header.get("PIXELSCL")
    if isinstance(side, int | float) and side > 0 and str(header.get("PIXUNIT", "arcsecond")).startswith("arcsec"):
        return float(side)
    if not any(key in header for key in ("CDELT1", "CD1_1", "CDELT2", "CD2_2")):
        raise ConfigError(
            f"instrument.psf.file_scale: expected the side of a pixel of {path} (e.g. 0.05 arcsec), as its header has "
            f"no PIXELSCL (arcsec), CDELT1 or CD1_1"
        )
    try:
        sky = found_at("astropy.wcs:WCS")(header, naxis=2)
        scales = found_at("astropy.wcs.utils:proj_plane_pixel_scales")(sky) * 3600.0
    except (AttributeError, *UNREADABLE) as error:  # the first where astropy expects text and a card is a number
        raise ConfigError(
            f"instrument.psf.file_scale: expected the side of a pixel of {path} (e.g. 0.05 arcsec), as its header "
            f"has no world coordinates that can be read ({reason_of(error)})"
        ) from error
    if not (np.isfinite(scales).all() and scales.min() > 0 and abs(scales[0] / scales[1] - 1.0) <= 1e-6):
        raise ConfigError(f"instrument.psf.file: expected square pixels, got {scales[0]:g} x {scales[1]:g} arcsec")
    return float(scales[0])


def on_spaxels(
    planes: Float[ndarray, "plane row column"], scale: float, enclosed: float, cells: int = 1, least: int = 0
) -> tuple[Float[ndarray, "plane side side"], int, float]:
    """Images integrated over spaxels at the places of painted cells (`TAPS` more on each side), about the middle of the
    array; how many spaxels on each side they hold; the largest fraction cut off.

    `scale` is the side of an image's pixel in spaxels; its light is spread evenly over it. The square is the smallest
    that holds the fraction `enclosed` of the light of each plane, and `least` spaxels on each side or more.
    """
    light = planes / planes.sum(axis=(1, 2), keepdims=True)
    widest = int(np.ceil(max(max(planes.shape[1:]) * scale / 2 - 0.5, 0.0)))
    sizes = np.arange(min(widest, _FARTHEST) + 1)
    rows, columns = (_overlap(size, scale, np.zeros(len(sizes)), 2 * sizes + 1) for size in light.shape[1:])
    enclosing = np.einsum("sj,pjk,sk->ps", rows, light, columns, optimize=True).min(axis=0)
    enough = np.flatnonzero(enclosing >= enclosed - 1e-12)
    if not len(enough) and widest > _FARTHEST:
        raise ConfigError(
            f"instrument.psf.file_scale: expected an image with the fraction psf.enclosed = {enclosed:g} of its light "
            f"within {_FARTHEST} spaxels of its middle, got {enclosing[-1]:.3g} by pixels of {scale:.4g} spaxels each; "
            f"give file_scale in arcsec, lower psf.enclosed, or use larger spaxels"
        )
    reach = max(int(enough[0]) if len(enough) else widest, least)
    lost = max(1.0 - float(enclosing[min(reach, widest)]), 0.0)
    places = cell_offsets(reach, cells, TAPS)
    rows, columns = (_overlap(size, scale, places) for size in light.shape[1:])
    return np.einsum("ij,pjk,lk->pil", rows, light, columns), reach, lost


def _overlap(
    size: int, scale: float, places: Float[ndarray, " place"], widths: ArrayLike = 1.0
) -> Float[ndarray, "place pixel"]:
    """Share of each pixel along one axis that lies in a box of this width (spaxels) at each place."""
    edges, half = (np.arange(size + 1) - size / 2) * scale, np.broadcast_to(widths, places.shape) / 2
    low = np.maximum(edges[None, :-1], (places - half)[:, None])
    high = np.minimum(edges[None, 1:], (places + half)[:, None])
    return np.maximum(high - low, 0.0) / scale


def sharpening(images: Float[ndarray, "plane wider wider"], painting: Painting) -> float:
    """Variance of the deposit (cells^2) that images can be sharpened by: none below -1 % of the peak."""
    whole = float(painting.taken_off(np.asarray(np.inf), np))

    def is_sound(variance: float) -> bool:
        sharper = sharpened(sharpened(images, 1, np.asarray(variance), np), 2, np.asarray(variance), np)
        peaks = sharper.max(axis=(1, 2))
        return bool((sharper.min(axis=(1, 2)) >= -_DEEPEST * peaks).all())

    return next((whole * share for share in np.linspace(1.0, 0.0, 21) if is_sound(whole * share)), 0.0)


_ARCSEC = np.pi / 180 / 3600

_KOLMOGOROV = (24 / 5 * gamma(6 / 5)) ** (5 / 6) * gamma(11 / 6) ** 2 / (2 * np.pi ** (11 / 3))
"""Of the phase's power spectrum, times r0^(-5/3) f^(-11/3): 0.0229."""

_N_RADIUS, _N_FREQUENCY = 800, 400
_SMALLEST_HARMONIC = 1e-9
_MOST_HARMONICS = 60
_ALIASED = 3.0
"""Period of the images, in their sides: light from beyond one side is folded in."""

_DISC_PERIOD, _HALO_PERIOD = 4.0, 20.0
"""Smallest period of the light in discs, in the largest distance of a disc's edge, and in widths of the halo: what lies
farther away, which is folded in, is less than 1e-4 of the light."""

_LEFT_OUT = 1e-6
"""Light in a disc that frequencies beyond those that are summed can change."""

_PIECE, _PIECE_PHASE, _LEAST_PIECES = 32, 22.0, 40
"""Gauss-Legendre nodes of a piece of the frequencies, half the phase (rad) that the kernel may turn by within it."""

_PLACES = 12
"""Places in a cycle of the highest frequency at which light in discs is worked out; cubic splines are between."""

_BLOCK = 1 << 22
"""Numbers of the kernel that are worked on at once."""

_SMALL_PHASE = 1e-2

_DEGREE, _MOST_PIECES = 8, 16
_BETWEEN_NODES = 2e-4
"""Largest error of an image between two wavelengths, relative to its peak, at which the range is cut no further."""

_FARTHEST = 1024
"""Spaxels on each side up to which light is followed."""

_TABLES = ("image", "ends", "degree", "reach", "lost")


class AdaptiveImages(NamedTuple):
    """Images of the PSF integrated over spaxels at the places of painted cells, (node, side, side); between which
    wavelengths they are polynomials; spaxels on each side; the light beyond."""

    images: Float[ndarray, "node side side"]
    nodes: WavelengthNodes | None
    reach: int
    lost: float


def optical_transfer(
    optics: AdaptiveOptics, wavelength: float, x: Float[ndarray, "*n"], y: Float[ndarray, "*n"]
) -> Float[ndarray, "*n"]:
    """The transfer function at places (x, y) of the pupil plane (m), which are the angular frequency times wavelength.

    That of the pupil times exp(-(B(0) - B(x, y))), where B is the phase's covariance, the Fourier transform of

        W(f) = C + A (beta - 1) / (pi ax ay N) (1 + u^2 / ax^2 + v^2 / ay^2)^-beta,
        N = 1 - (1 + f_c^2 / (ax ay))^(1 - beta)

    up to the cut-off f_c and 0.0229 r0^(-5/3) (f^2 + 1 / L0^2)^(-11/6) beyond (Fetick et al. 2019, A&A 628, A99).
    """
    distance = np.hypot(x, y)
    scale = (optics.wavelength / wavelength) ** 2
    outer, inner = optics.diameter / 2, optics.diameter / 2 * optics.obstruction
    pupil = _lens(outer, outer, distance) - 2 * _lens(outer, inner, distance) + _lens(inner, inner, distance)
    pupil /= np.pi * (outer**2 - inner**2)
    return pupil * np.exp(-scale * _phase_lost(optics, distance, np.arctan2(x, y)))


def _lens(first: float, second: float, distance: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
    """Area that two circles of these radii, the second not the larger one, have in common."""
    if second == 0.0:
        return np.zeros_like(distance)
    near, far = first - second, first + second
    apart = np.clip(distance, max(near, 1e-12 * first), far)
    one = np.arccos(np.clip((apart**2 + first**2 - second**2) / (2 * apart * first), -1, 1))
    other = np.arccos(np.clip((apart**2 + second**2 - first**2) / (2 * apart * second), -1, 1))
    kite = np.sqrt(np.clip((far - apart) * (apart + near) * (apart - near) * (apart + far), 0, None)) / 2
    area = first**2 * one + second**2 * other - kite
    return np.where(distance <= near, np.pi * second**2, np.where(distance >= far, 0.0, area))


def _phase_lost(
    optics: AdaptiveOptics, distance: Float[ndarray, "*n"], angle: Float[ndarray, "*n"]
) -> Float[ndarray, "*n"]:
    """B(0) - B at places of the pupil plane (m, angle from +y to +x), for the wavelength of the parameters.

    The corrected part by its harmonics in angle, each a Hankel transform; the rest is that of uncorrected turbulence
    without what lies below the cut-off. Both are tabulated by distance.
    """
    at = np.sqrt(np.minimum(distance, optics.diameter))
    first, *others = _by_distance(optics.model_dump_json())
    lost = first(at)
    for number, harmonic in enumerate(others, start=1):
        lost = lost - harmonic(at) * np.cos(2 * number * (angle - np.deg2rad(optics.theta)))
    return lost


@functools.lru_cache(maxsize=8)
def _by_distance(settings: str) -> tuple[CubicSpline, ...]:
    """The mean of B(0) - B over angles, and B's harmonics, by the square root of the distance; settings as JSON."""
    optics = AdaptiveOptics.model_validate_json(settings)
    root = np.linspace(0.0, np.sqrt(optics.diameter), _N_RADIUS)
    radius = root**2
    harmonics = _harmonics(optics, radius)
    halo = _turbulence(optics, radius) - _uncorrected(optics, radius)
    tables = [harmonics[0][0] - harmonics[0] + halo, *harmonics[1:]]
    return tuple(CubicSpline(root, table) for table in tables)


def _harmonics(optics: AdaptiveOptics, radius: Float[ndarray, " r"]) -> list[Float[ndarray, " r"]]:
    """B of the corrected part: its harmonics of the angles 0, 2, 4, ... by distance."""
    long, short = optics.alpha * optics.ratio, optics.alpha / optics.ratio
    nodes, weights = leggauss(_N_FREQUENCY)
    stretch = np.arcsinh(optics.cutoff / optics.alpha)  # dense where the Moffat is
    place = (nodes + 1) / 2 * stretch
    frequency = optics.alpha * np.sinh(place)
    weight = weights / 2 * stretch * optics.alpha * np.cosh(place) * 2 * np.pi * frequency
    n_angle = 4 * _MOST_HARMONICS
    angle = (np.arange(n_angle) + 0.5) * np.pi / n_angle
    along, across = frequency[:, None] * np.cos(angle), frequency[:, None] * np.sin(angle)
    within = -np.expm1((1.0 - optics.beta) * np.log1p(optics.cutoff**2 / (long * short)))
    height = optics.amplitude * (optics.beta - 1.0) / (np.pi * long * short) / within
    moffat = height * (1.0 + (along / long) ** 2 + (across / short) ** 2) ** -optics.beta
    phase = 2 * np.pi * radius[:, None] * frequency[None, :]
    found = [j0(phase) @ (weight * (moffat.mean(axis=1) + optics.background))]
    for number in range(1, _MOST_HARMONICS if optics.ratio != 1.0 else 1):
        part = 2 * (moffat * np.cos(2 * number * angle)).mean(axis=1)
        found.append((-1) ** number * (jv(2 * number, phase) @ (weight * part)))
        if np.abs(found[-1]).max() < _SMALLEST_HARMONIC:
            break
    return found


def _turbulence(optics: AdaptiveOptics, radius: Float[ndarray, " r"]) -> Float[ndarray, " r"]:
    """B(0) - B of uncorrected turbulence: half the structure function of Kolmogorov, or of von Karman."""
    if optics.outer_scale is None:
        factor = (24 / 5 * gamma(6 / 5)) ** (5 / 6)  # 3.44, half of 6.88
        return factor * (radius / optics.r0) ** (5 / 3)
    factor = gamma(11 / 6) / (2 ** (5 / 6) * np.pi ** (8 / 3)) * (24 / 5 * gamma(6 / 5)) ** (5 / 6)
    place = np.maximum(2 * np.pi * radius / optics.outer_scale, 1e-12)
    covariance = place ** (5 / 6) * kv(5 / 6, place)
    return factor * (optics.outer_scale / optics.r0) ** (5 / 3) * (gamma(5 / 6) / 2 ** (1 / 6) - covariance)


def _uncorrected(optics: AdaptiveOptics, radius: Float[ndarray, " r"]) -> Float[ndarray, " r"]:
    """The part of it that lies below the cut-off frequency."""
    nodes, weights = leggauss(_N_FREQUENCY)
    place = (nodes + 1) / 2
    frequency = optics.cutoff * place**3
    weight = weights / 2 * 3 * optics.cutoff * place**2 * 2 * np.pi * frequency
    least = 0.0 if optics.outer_scale is None else 1.0 / optics.outer_scale**2
    spectrum = _KOLMOGOROV * optics.r0 ** (-5 / 3) * (frequency**2 + least) ** (-11 / 6)
    phase = 2 * np.pi * radius[:, None] * frequency[None, :]
    below = phase < _SMALL_PHASE
    one_less = np.where(below, phase**2 / 4 * (1 - phase**2 / 16), 1.0 - j0(np.where(below, 1.0, phase)))
    return one_less @ (weight * spectrum)


def adaptive_images(
    optics: AdaptiveOptics,
    pixel_scale: float,
    range_: tuple[float, float],
    enclosed: float,
    cells: int = 1,
    like: tuple[int, WavelengthNodes] | None = None,
) -> AdaptiveImages:
    """The PSF's images for spaxels (arcsec) over a range of wavelengths (Angstrom), not sharpened.

    The square holds the fraction `enclosed` of the light at both ends of the range. Between the nodes images are right
    to 2e-4 of their peak. `like`: a reach and nodes that are given. From the disk cache where they were worked out
    before. Raises ConfigError where the light reaches too far.
    """
    parts = optics.model_dump(), pixel_scale, range_, enclosed, cells
    given = () if like is None else (like[0], like[1].degree, np.asarray(like[1].ends))

    def make() -> dict[str, ndarray]:
        reach, lost = _reach(optics, pixel_scale, range_, enclosed, 0 if like is None else like[0])
        offset = cell_offsets(reach, cells, TAPS)

        @functools.cache
        def of_one(wavelength: float) -> Float[ndarray, "place place"]:
            return _Grid.of(optics, pixel_scale, wavelength, _ALIASED * (2 * reach + 1)).image(offset)

        nodes = _fewest_nodes(range_, of_one) if like is None else like[1]
        image = np.stack([of_one(float(wavelength)) for wavelength in nodes.wavelength])
        return {
            "image": image,
            "ends": np.asarray(nodes.ends),
            "degree": np.asarray(nodes.degree),
            "reach": np.asarray(reach),
            "lost": np.asarray(lost),
        }

    found = remembered("adaptive", key_of(*parts, *given), _TABLES, make)
    nodes = WavelengthNodes(np.asarray(found["ends"]), int(found["degree"]))
    return AdaptiveImages(np.asarray(found["image"]), nodes, int(found["reach"]), float(found["lost"]))


def effective_area(optics: AdaptiveOptics, wavelength: float) -> float:
    """1 / (integral of the squared PSF) in arcsec^2, before the spaxel's box: by Parseval's theorem."""
    grid = _Grid.of(optics, 1e-3, wavelength, _ALIASED * 2e3)
    second = grid.even**2 if not grid.odd.size else grid.even**2 + grid.odd**2
    return 1e-6 / float(grid.weight @ second @ grid.weight)


def lights_in_discs(
    optics: AdaptiveOptics,
    wavelength: Float[ndarray, " node"],
    radius: float,
    every: Sequence[tuple[Float[ndarray, "disc x"], Float[ndarray, "disc y"]]],
) -> Float[ndarray, "node disc y x"]:
    """Light of a star within discs of `radius` at the distances (west, north) of each wavelength, all in arcsec.

    That of a circular PSF is found by the distance alone, for all wavelengths together; of another one as
    `light_in_discs` does, one wavelength after the other.
    """
    if optics.ratio != 1.0:
        pairs = zip(wavelength, every, strict=True)
        return np.stack([light_in_discs(optics, float(node), radius, *away) for node, away in pairs])
    cycles = optics.diameter / (np.asarray(wavelength) * 1e-10) * _ARCSEC  # per arcsec, that the pupil passes
    away = [np.hypot(west[:, None, :], north[:, :, None]) for west, north in every]
    farthest = max(distance.max() * scale for distance, scale in zip(away, cycles, strict=True))
    place, light = _by_place(optics, wavelength, radius, farthest)
    nodes = zip(light.T, cycles, away, strict=True)
    return np.stack([CubicSpline(place, values)(scale * distance) for values, scale, distance in nodes])


def _by_place(
    optics: AdaptiveOptics, wavelength: Float[ndarray, " node"], radius: float, farthest: float
) -> tuple[Float[ndarray, " place"], Float[ndarray, "place node"]]:
    """Places up to `farthest`, in arcsec times the pupil's cycles per arcsec, and the light in discs there.

    2 pi int T(f) R J1(2 pi R f) / f J0(2 pi f r) f df is a sum over Gauss-Legendre nodes of the frequency in units of
    the highest one, by which the kernel J0 is that of all wavelengths.
    """
    nodes, weights = leggauss(_PIECE)
    n_piece = max(_LEAST_PIECES, int(np.ceil(np.pi * farthest / _PIECE_PHASE)))
    share = ((np.arange(n_piece)[:, None] + (nodes + 1) / 2) / n_piece).reshape(-1)
    weight = np.tile(weights / (2 * n_piece), n_piece)
    columns = []
    for node in np.asarray(wavelength):
        highest = optics.diameter / (node * 1e-10) * _ARCSEC
        transfer = optical_transfer(optics, float(node), np.zeros_like(share), optics.diameter * share)
        columns.append(2 * np.pi * radius * highest * weight * transfer * j1(2 * np.pi * radius * highest * share))
    place = np.arange(int(np.ceil(farthest * _PLACES)) + 4) / _PLACES
    kernel, summands = 2 * np.pi * share, np.stack(columns, axis=1)
    blocks = np.array_split(place, max(1, len(place) * len(share) // _BLOCK))
    return place, np.concatenate([j0(block[:, None] * kernel) @ summands for block in blocks])


def light_in_discs(
    optics: AdaptiveOptics,
    wavelength: float,
    radius: float,
    west: Float[ndarray, "disc x"],
    north: Float[ndarray, "disc y"],
) -> Float[ndarray, "disc y x"]:
    """Light of a star within discs of `radius` at distances (all in arcsec) along both axes, at one wavelength.

    The transform of the PSF times that of the disc, R J1(2 pi R f) / f, summed over angular frequencies up to where the
    rest is less than 1e-6.
    """
    farthest = float(max(np.abs(west).max(), np.abs(north).max()) + radius)
    r0 = optics.r0 * (wavelength / optics.wavelength) ** 1.2
    seeing = wavelength * 1e-10 / min(r0, optics.diameter) / _ARCSEC
    grid = _Grid.of(optics, 1.0, wavelength, max(_DISC_PERIOD * farthest, _HALO_PERIOD * seeing)).of_disc(radius)
    return np.stack([grid.at(*disc) for disc in zip(north, west, strict=True)])


def _reach(
    optics: AdaptiveOptics, pixel_scale: float, range_: tuple[float, float], enclosed: float, least: int
) -> tuple[int, float]:
    """Spaxels on each side that hold the fraction `enclosed`, at least so many; the largest fraction beyond."""
    half, light = max(16, least), np.zeros(1)
    while half <= _FARTHEST:
        grids = [_Grid.of(optics, pixel_scale, end, 4.0 * half) for end in sorted({*range_})]
        light = np.min([grid.enclosed(half) for grid in grids], axis=0)
        enough = np.flatnonzero(light >= enclosed)
        if len(enough):
            reach = max(int(enough[0]), least)
            return reach, max(1.0 - float(light[reach]), 0.0)
        half *= 2
    raise ConfigError(
        f"instrument.psf: expected the fraction psf.enclosed = {enclosed:g} of the light within {_FARTHEST} spaxels, "
        f"got {float(light[-1]):.3g}; lower psf.enclosed"
    )


def _fewest_nodes(range_: tuple[float, float], of_one: Callable[[float], ndarray]) -> WavelengthNodes:
    """The fewest pieces of the range between whose nodes polynomials suffice, by the largest error midway between the
    nodes of the first piece, which changes most."""
    if range_[0] == range_[1]:
        return WavelengthNodes(np.array(range_[:1]), _DEGREE)
    n_piece = 1
    while True:
        nodes = WavelengthNodes(np.linspace(*range_, n_piece + 1), _DEGREE)
        first = nodes.wavelength[: _DEGREE + 1]
        between = (first[1:] + first[:-1]) / 2
        images, exact = (np.stack([of_one(float(place)) for place in places]) for places in (first, between))
        found = np.einsum("bn,nyx->byx", nodes.shares(between, np)[:, : _DEGREE + 1], images)
        if n_piece == _MOST_PIECES or np.abs(found - exact).max() <= _BETWEEN_NODES * exact.max():
            return nodes
        n_piece *= 2


class _Grid(NamedTuple):
    """The PSF at one wavelength as a sum over angular frequencies (per spaxel) of one quadrant."""

    frequency: Float[ndarray, " f"]
    even: Float[ndarray, "f f"]
    odd: Float[ndarray, "f f"]

    @staticmethod
    def of(optics: AdaptiveOptics, pixel_scale: float, wavelength: float, period: float) -> "_Grid":
        """For images that repeat after a period (spaxels)."""
        metres = wavelength * 1e-10 / (pixel_scale * _ARCSEC)  # in the pupil plane, for one cycle per spaxel
        frequency = np.arange(int(optics.diameter / metres * period) + 1) / period
        x, y = (metres * axis for axis in np.broadcast_arrays(frequency[None, :], frequency[:, None]))
        first = optical_transfer(optics, wavelength, -x, y)  # columns go to the West
        if optics.ratio == 1.0:
            return _Grid(frequency, first, np.zeros((0, 0)))
        second = optical_transfer(optics, wavelength, x, y)
        return _Grid(frequency, (first + second) / 2, (first - second) / 2)

    @property
    def weight(self) -> Float[ndarray, " f"]:
        """Weight of each frequency: both signs."""
        return np.where(self.frequency == 0.0, 1.0, 2.0) * self.frequency[1]

    def enclosed(self, half: int) -> Float[ndarray, " size"]:
        """Light within squares of 2 size + 1 spaxels, for sizes up to `half`."""
        side = 2.0 * np.arange(half + 1) + 1.0
        within = self.weight * side[:, None] * np.sinc(side[:, None] * self.frequency)
        return np.einsum("si,ij,sj->s", within, self.even, within, optimize=True)

    def image(self, offset: Float[ndarray, " place"]) -> Float[ndarray, "place place"]:
        """Light in spaxels at these distances (spaxels) from the star, along both axes."""
        phase, box = 2 * np.pi * offset[:, None] * self.frequency, self.weight * np.sinc(self.frequency)
        cosine = np.cos(phase) * box
        image = cosine @ self.even @ cosine.T
        if not self.odd.size:
            return image
        sine = np.sin(phase) * box
        return image - sine @ self.odd @ sine.T

    def of_disc(self, radius: float) -> "_Grid":
        """The sum for light within discs instead of that per square spaxel, without frequencies that do not matter."""
        away = np.hypot(self.frequency[:, None], self.frequency[None, :])
        disc = np.full_like(away, np.pi * radius**2)
        disc.flat[1:] = radius * j1(2 * np.pi * radius * away.flat[1:]) / away.flat[1:]
        even, odd = self.even * disc, self.odd * disc if self.odd.size else self.odd
        size = np.abs(even) * self.weight[:, None] * self.weight[None, :]
        by_ring = size.cumsum(axis=0).cumsum(axis=1).diagonal()
        number = int(np.searchsorted(by_ring, by_ring[-1] - _LEFT_OUT)) + 1
        odd = odd[:number, :number] if odd.size else odd
        return _Grid(self.frequency[:number], even[:number, :number], odd)

    def at(self, y: Float[ndarray, " y"], x: Float[ndarray, " x"]) -> Float[ndarray, "y x"]:
        """The sum over frequencies at these places."""
        rows, columns = (2 * np.pi * axis[:, None] * self.frequency for axis in (y, x))
        total = (np.cos(rows) * self.weight) @ self.even @ (np.cos(columns) * self.weight).T
        if not self.odd.size:
            return total
        return total - (np.sin(rows) * self.weight) @ self.odd @ (np.sin(columns) * self.weight).T
