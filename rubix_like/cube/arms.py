"""One cube of the arms of a spectrograph: their spectra joined on a grid that all of them lie on."""

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.cube.bins import SAME_BINS, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra

Values = Float[ndarray, "... _"]


class _Spectra(NamedTuple):
    """Spectra of an arm, or of all of them: values, variance, values without noise, and bits."""

    flux: Values
    variance: Values | None
    truth: Values | None
    mask: Int[ndarray, "... _"]

    def part(self, bins: slice) -> "_Spectra":
        """Some bins."""
        return _Spectra(*(None if own is None else own[..., bins] for own in self))  # pyright: ignore[reportArgumentType]


class _Stretch(NamedTuple):
    """Bins that the same arms see, each with the place of these bins among its own."""

    bins: slice
    arms: tuple[tuple[int, slice], ...]


def join_arms(cubes: Sequence[Cube], bins: WavelengthBins, instrument: str, config: str) -> Cube:
    """The cubes of several arms as one with `bins`, which hold those of all arms.

    Where arms overlap, each spectrum is the mean of theirs weighted by the inverse variance (by equal parts without a
    noise model); an arm's flagged bins count where no arm has good ones. Spectra of fibres are joined before the cube
    is made of them, so that its covariance is known. The line spread of the mean is that of the second moment of
    theirs. Raises ValueError for cubes of other spaxels, or bins that are not among `bins`.
    """
    first, stretches = cubes[0], _stretches([_place_of(cube, bins) for cube in cubes])
    if any(cube.footprint != first.footprint for cube in cubes):
        raise ValueError("join: expected arms with the same spaxels, got others")
    fibres, own = None, [cube.fibres for cube in cubes if cube.fibres is not None]
    voxels = [_voxels(cube) for cube in cubes]
    if len(own) == len(cubes):
        spectra, shares = _joined([_of_fibres(one) for one in own], stretches)
        values = {"flux": spectra.flux, "variance": spectra.variance, "truth": spectra.truth}
        fibres = dataclasses.replace(own[0], **values, mask=np.array(spectra.mask[0]))
        joined, _ = _joined(voxels, stretches, fibres)
    else:
        joined, shares = _joined(voxels, stretches)
    widths = [cube.lsf_fwhm for cube in cubes]
    return Cube(
        **joined._asdict(),
        bins=bins,
        footprint=first.footprint,
        mean_v_los=_velocity(cubes),
        lsf_fwhm=None if any(width is None for width in widths) else _width(widths, stretches, shares),
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


def _stretches(places: Sequence[slice]) -> list[_Stretch]:
    """All bins in stretches that the same arms see."""
    ends = sorted({end for at in places for end in (at.start, at.stop)})
    return [
        _Stretch(
            slice(low, high),
            tuple(
                (number, slice(low - at.start, high - at.start))
                for number, at in enumerate(places)
                if at.start <= low < at.stop
            ),
        )
        for low, high in pairwise(ends)
    ]


def _voxels(cube: Cube) -> _Spectra:
    values = (None if own is None else np.asarray(own) for own in (cube.flux, cube.variance, cube.truth, cube.mask))
    return _Spectra(*values)  # pyright: ignore[reportArgumentType]


def _of_fibres(fibres: FibreSpectra) -> _Spectra:
    values = (None if own is None else np.asarray(own) for own in (fibres.flux, fibres.variance, fibres.truth))
    flux, variance, truth = values
    assert flux is not None
    return _Spectra(flux, variance, truth, np.broadcast_to(np.asarray(fibres.mask), flux.shape))


def _joined(
    arms: Sequence[_Spectra], stretches: Sequence[_Stretch], fibres: FibreSpectra | None = None
) -> tuple[_Spectra, list[list[Values]]]:
    """The spectra of all bins, and in each stretch the shares of its arms, as the mean over spectra.

    Bins of one arm alone are copied. `fibres`: joined spectra, of which bins that several arms see are made.
    """
    parts, shares = list[_Spectra](), list[list[Values]]()
    for stretch in stretches:
        own = [arms[number].part(at) for number, at in stretch.arms]
        if len(own) == 1:
            parts.append(own[0])
            shares.append([np.ones(stretch.bins.stop - stretch.bins.start)])
            continue
        weights = _weights(own)
        shares.append([weight.reshape(-1, weight.shape[-1]).mean(axis=0) for weight in weights])
        mask = _joined_bits(own)
        parts.append(_mean(own, weights, mask) if fibres is None else _remade(own[0], fibres, stretch.bins, mask))
    columns = zip(*parts, strict=True)
    whole = (None if any(own is None for own in column) else np.concatenate(column, axis=-1) for column in columns)
    return _Spectra(*whole), shares  # pyright: ignore[reportArgumentType]


def _weights(arms: Sequence[_Spectra]) -> list[Values]:
    """Each arm's weight; they add up to 1 in every bin of every spectrum."""
    own = []
    for arm in arms:
        inverse = np.ones(arm.flux.shape)
        if arm.variance is not None:
            variance = np.asarray(arm.variance, dtype=np.float64)
            inverse = 1 / np.where(variance > 0, variance, np.inf)
        own.append(np.where(arm.mask == 0, inverse, 0.0))
    total = np.sum(own, axis=0)
    return [np.where(total > 0, weight / np.where(total > 0, total, 1), 1 / len(own)) for weight in own]


def _mean(arms: Sequence[_Spectra], weights: Sequence[Values], mask: Int[ndarray, "... _"]) -> _Spectra:
    """The weighted mean, its variance and its values without noise."""

    def added(values: Sequence[Any], power: int) -> Any:
        if any(own is None for own in values):
            return None
        total = sum(np.asarray(own, np.float64) * weight**power for own, weight in zip(values, weights, strict=True))
        return np.asarray(total).astype(values[0].dtype)

    flux, variance, truth = ([getattr(arm, name) for arm in arms] for name in ("flux", "variance", "truth"))
    return _Spectra(added(flux, 1), added(variance, 2), added(truth, 1), mask)


def _joined_bits(arms: Sequence[_Spectra]) -> Int[ndarray, "... _"]:
    """0 where an arm is good, else the bits of all."""
    masks = [np.asarray(arm.mask) for arm in arms]
    good = np.any([mask == 0 for mask in masks], axis=0)
    return np.where(good, 0, np.bitwise_or.reduce(masks)).astype(masks[0].dtype)


def _remade(alike: _Spectra, fibres: FibreSpectra, bins: slice, mask: Int[ndarray, "... _"]) -> _Spectra:
    """Voxels made of some bins of the spectra of fibres, of the dtypes that an arm has."""

    def made(images: Callable[[Any], Any], spectra: Any, like: Values | None) -> Any:
        if spectra is None or like is None:
            return None
        return np.asarray(images(jnp.asarray(spectra[:, bins]))).astype(like.dtype)

    weights = fibres.weights
    return _Spectra(
        made(weights.images, fibres.flux, alike.flux),
        made(weights.variances, fibres.variance, alike.variance),
        made(weights.images, fibres.truth, alike.truth),
        mask,
    )


def _width(
    widths: Sequence[Any], stretches: Sequence[_Stretch], shares: Sequence[Sequence[Values]]
) -> Float[ndarray, " wave"]:
    """FWHM of the second moment of each bin's light."""
    squares = [
        sum(np.asarray(widths[number], np.float64)[at] ** 2 * share
            for (number, at), share in zip(stretch.arms, own, strict=True))
        for stretch, own in zip(stretches, shares, strict=True)
    ]  # fmt: skip
    return np.sqrt(np.concatenate(squares))


def _velocity(cubes: Sequence[Cube]) -> Float[ndarray, "y x"] | None:
    """The mean velocity of the light of all arms (km/s): theirs weighted with their light."""
    light = weighted = np.zeros(cubes[0].shape[:2])
    for cube in cubes:
        if cube.mean_v_los is None:
            return None
        velocity, flux = np.asarray(cube.mean_v_los, dtype=np.float64), np.asarray(cube.flux)
        own = np.maximum(flux @ np.diff(cube.wave_edges).astype(flux.dtype), 0.0) * np.isfinite(velocity)
        light, weighted = light + own, weighted + own * np.nan_to_num(velocity)
    mean = np.where(light > 0, weighted / np.where(light > 0, light, 1.0), np.nan)
    return mean.astype(np.asarray(cubes[0].mean_v_los).dtype)
