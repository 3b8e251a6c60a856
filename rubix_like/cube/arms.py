"""One cube of the arms of a spectrograph: their spectra joined on a grid that all of them lie on."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.cube.bins import SAME_BINS, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_sums import white_light
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra

Values = Float[ndarray, "... _"]


class _Spectra(NamedTuple):
    """Spectra of an arm, or of all of them: values, variance, values without noise, and bits."""

    flux: Values
    variance: Values | None
    truth: Values | None
    mask: Int[ndarray, "... _"]


def join_arms(cubes: Sequence[Cube], bins: WavelengthBins, instrument: str, config: str) -> Cube:
    """The cubes of several arms as one with `bins`, which hold those of all arms.

    Where arms overlap, each spectrum is the mean of theirs weighted by the inverse variance (by equal parts without a
    noise model); an arm's flagged bins count where no arm has good ones. Spectra of fibres are joined before the cube
    is made of them, so that its covariance is known. The line spread of the mean is that of the second moment of
    theirs. Raises ValueError for cubes of other spaxels, or bins that are not among `bins`.
    """
    first, places = cubes[0], [_place_of(cube, bins) for cube in cubes]
    if any(cube.footprint != first.footprint for cube in cubes):
        raise ValueError("join: expected arms with the same spaxels, got others")
    fibres = None
    joined, shares = _joined([_voxels(cube) for cube in cubes], places, bins.n_wave)
    if all(cube.fibres is not None for cube in cubes):
        own = [cube.fibres for cube in cubes if cube.fibres is not None]
        spectra, shares = _joined([_of_fibres(fibre) for fibre in own], places, bins.n_wave)
        fibres = dataclasses.replace(own[0], **_without_bits(spectra), mask=_bits(spectra.mask))
        joined = _remade(joined, fibres, places)
    widths = [cube.lsf_fwhm for cube in cubes]
    return Cube(
        **joined._asdict(),
        bins=bins,
        footprint=first.footprint,
        mean_v_los=_velocity(cubes),
        lsf_fwhm=None if any(own is None for own in widths) else _width(widths, places, shares),
        counters=first.counters,
        source_counters=first.source_counters,
        meta=first.meta.replace(instrument=instrument, config=config),
        fibres=fibres,
    )


def _place_of(cube: Cube, bins: WavelengthBins) -> slice:
    """Where the bins of an arm are among all."""
    start = int(np.round(bins.place(cube.wavelength[:1])[0]))
    stop = start + cube.bins.n_wave
    if start < 0 or stop > bins.n_wave or not bins.part(start, stop).offset(cube.wavelength) < SAME_BINS:
        raise ValueError(
            f"join: expected the bins of an arm among those of the joined cube, got {cube.wavelength[0]:.6g} to "
            f"{cube.wavelength[-1]:.6g} Angstrom beside {bins.edges[0]:.6g} to {bins.edges[-1]:.6g}"
        )
    return slice(start, stop)


def _voxels(cube: Cube) -> _Spectra:
    return _Spectra(cube.flux, cube.variance, cube.truth, np.asarray(cube.mask))  # pyright: ignore[reportArgumentType]


def _of_fibres(fibres: FibreSpectra) -> _Spectra:
    mask = np.broadcast_to(np.asarray(fibres.mask), fibres.flux.shape)
    return _Spectra(fibres.flux, fibres.variance, fibres.truth, mask)  # pyright: ignore[reportArgumentType]


def _joined(arms: Sequence[_Spectra], places: Sequence[slice], n_wave: int) -> tuple[_Spectra, list[Values]]:
    """The spectra of all bins, and each arm's share of them, as the mean over spectra."""
    weights = _weights(arms, places, n_wave)
    flux = _mean([own.flux for own in arms], weights, places, n_wave)
    variance = truth = None
    if all(own.variance is not None for own in arms):
        squares = [weight**2 for weight in weights]
        variance = _mean([own.variance for own in arms], squares, places, n_wave)
    if all(own.truth is not None for own in arms):
        truth = _mean([own.truth for own in arms], weights, places, n_wave)
    shares = [weight.reshape(-1, weight.shape[-1]).mean(axis=0) for weight in weights]
    return _Spectra(flux, variance, truth, _joined_bits(arms, places, n_wave)), shares


def _weights(arms: Sequence[_Spectra], places: Sequence[slice], n_wave: int) -> list[Values]:
    """Each arm's weight in its own bins; they add up to 1 in every bin of every spectrum."""
    own = []
    for arm in arms:
        variance = None if arm.variance is None else np.asarray(arm.variance, dtype=np.float64)
        inverse = np.ones(arm.flux.shape) if variance is None else 1 / np.where(variance > 0, variance, np.inf)
        own.append(np.where(arm.mask == 0, inverse, 0.0))
    total = _sum(own, places, n_wave)
    count = _sum([np.ones_like(weight) for weight in own], places, n_wave)
    pairs = zip(own, places, strict=True)
    return [np.where(total[..., at] > 0, w / np.where(total[..., at] > 0, total[..., at], 1), 1 / count[..., at])
            for w, at in pairs]  # fmt: skip


def _sum(values: Sequence[Values], places: Sequence[slice], n_wave: int) -> Values:
    total = np.zeros((*values[0].shape[:-1], n_wave))
    for own, at in zip(values, places, strict=True):
        total[..., at] += own
    return total


def _mean(values: Sequence[Any], weights: Sequence[Values], places: Sequence[slice], n_wave: int) -> Values:
    """The weighted sum; where there is one arm alone its own numbers, bit for bit."""
    weighted = [np.asarray(own, dtype=np.float64) * weight for own, weight in zip(values, weights, strict=True)]
    return _sum(weighted, places, n_wave).astype(values[0].dtype)


def _joined_bits(arms: Sequence[_Spectra], places: Sequence[slice], n_wave: int) -> Int[ndarray, "... _"]:
    """0 where an arm is good, else the bits of all."""
    bits = np.zeros((*arms[0].mask.shape[:-1], n_wave), dtype=np.int32)
    good = np.zeros(bits.shape, dtype=bool)
    for arm, at in zip(arms, places, strict=True):
        bits[..., at] |= arm.mask
        good[..., at] |= arm.mask == 0
    return np.where(good, 0, bits)


def _without_bits(spectra: _Spectra) -> dict[str, Values | None]:
    return {"flux": spectra.flux, "variance": spectra.variance, "truth": spectra.truth}


def _bits(mask: Int[ndarray, "fibre wave"]) -> Int[ndarray, " wave"]:
    """Bits of the bins, which all fibres have alike."""
    return np.array(mask[0])


def _remade(joined: _Spectra, fibres: FibreSpectra, places: Sequence[slice]) -> _Spectra:
    """The cube with the bins that several arms see made anew of the joined spectra of fibres."""
    seen = np.zeros(joined.flux.shape[-1], dtype=int)
    for at in places:
        seen[at] += 1
    several = np.flatnonzero(seen > 1)
    if not several.size:
        return joined
    made = {"flux": fibres.weights.images, "variance": fibres.weights.variances, "truth": fibres.weights.images}
    changed = {}
    for name, images in made.items():
        values, spectra = getattr(joined, name), getattr(fibres, name)
        if values is not None:
            own = values.copy()
            own[..., several] = np.asarray(images(jnp.asarray(spectra[:, several])))
            changed[name] = own
    return joined._replace(**changed)


def _width(widths: Sequence[Any], places: Sequence[slice], shares: Sequence[Values]) -> Float[ndarray, " wave"]:
    n_wave = max(at.stop for at in places)
    squares = [np.asarray(own, dtype=np.float64) ** 2 * share for own, share in zip(widths, shares, strict=True)]
    return np.sqrt(_sum(squares, places, n_wave))


def _velocity(cubes: Sequence[Cube]) -> Float[ndarray, "y x"] | None:
    """The mean velocity of the light of all arms (km/s): theirs weighted with their light."""
    light = weighted = np.zeros(cubes[0].shape[:2])
    for cube in cubes:
        if cube.mean_v_los is None:
            return None
        velocity = np.asarray(cube.mean_v_los, dtype=np.float64)
        own = np.where(np.isfinite(velocity), np.maximum(white_light(cube), 0.0), 0.0)
        light, weighted = light + own, weighted + own * np.nan_to_num(velocity)
    mean = np.where(light > 0, weighted / np.where(light > 0, light, 1.0), np.nan)
    return mean.astype(np.asarray(cubes[0].mean_v_los).dtype)
