"""One cube of the arms of a spectrograph: their spectra joined on a grid that all of them lie on."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
    """Spectra of an arm, or of all: by name flux, truth and what each systematic error adds; variance and bits."""

    values: Mapping[str, Values]
    variance: Values | None
    mask: Int[ndarray, "... _"]

    @classmethod
    def of(cls, source: Cube | FibreSpectra, mask: Int[ndarray, "... _"]) -> "_Spectra":
        """The spectra of a cube, or of fibres, with these bits."""
        known = {"flux": source.flux, "truth": source.truth, "variance": source.variance, **source.contributions}
        values = {name: np.asarray(value) for name, value in known.items() if value is not None}
        variance = values.pop("variance", None)
        return cls(values, variance, mask)

    def part(self, bins: slice) -> "_Spectra":
        """Some bins."""
        variance = None if self.variance is None else self.variance[..., bins]
        return _Spectra({name: value[..., bins] for name, value in self.values.items()}, variance, self.mask[..., bins])

    def fields(self) -> dict[str, Any]:
        """Flux, variance, truth and contributions, as cubes and spectra of fibres have them."""
        added = dict(self.values)
        return {
            "flux": added.pop("flux"),
            "truth": added.pop("truth", None),
            "variance": self.variance,
            "contributions": added,
        }


class _Stretch(NamedTuple):
    """Bins that the same arms see, and for each arm the place of these bins among its bins."""

    bins: slice
    arms: tuple[tuple[int, slice], ...]


def join_arms(cubes: Sequence[Cube], bins: WavelengthBins, instrument: str, config: str) -> Cube:
    """The cubes of several arms as one with `bins`, which hold those of all arms.

    Where arms overlap, each spectrum is the mean of theirs weighted by the inverse variance (by equal parts without a
    noise model); an arm's flagged bins count where no arm has good ones. Spectra of fibres are joined before the cube
    is made of them, so that its covariance is known. The line spread of the mean is that of the second moment of
    theirs. Raises ValueError for cubes of other spaxels, or bins that are not among `bins`.

    What systematic errors add is joined like the light.
    """
    first, places, stretches = cubes[0], [_place_of(cube, bins) for cube in cubes], []
    for low, high in pairwise(sorted({end for at in places for end in (at.start, at.stop)})):
        arms = ((number, at.start) for number, at in enumerate(places) if at.start <= low < at.stop)
        stretches.append(_Stretch(slice(low, high), tuple((n, slice(low - start, high - start)) for n, start in arms)))
    if any(cube.footprint != first.footprint for cube in cubes):
        raise ValueError("join: expected arms with the same spaxels, got others")
    fibres, of_arms = None, [cube.fibres for cube in cubes if cube.fibres is not None]
    voxels = [_Spectra.of(cube, np.asarray(cube.mask)) for cube in cubes]
    if len(of_arms) == len(cubes):
        fibres, shares = _joined_fibres(of_arms, stretches)
        joined, _ = _joined(voxels, stretches, fibres)
    else:
        joined, shares = _joined(voxels, stretches)
    widths = [np.asarray(cube.lsf_fwhm, np.float64) for cube in cubes if cube.lsf_fwhm is not None]
    width = None
    if len(widths) == len(cubes):  # of the second moment of each bin's light
        squares = [
            np.sum(
                [widths[arm][at] ** 2 * share for (arm, at), share in zip(stretch.arms, weights, strict=True)], axis=0
            )
            for stretch, weights in zip(stretches, shares, strict=True)
        ]
        width = np.sqrt(np.concatenate(squares))
    return Cube(
        **joined.fields(),
        mask=joined.mask,
        bins=bins,
        footprint=first.footprint,
        mean_v_los=_velocity(cubes),
        lsf_fwhm=width,
        counters=first.counters,
        source_counters=first.source_counters,
        meta=first.meta.replace(instrument=instrument, config=config),
        fibres=fibres,
    )


def _place_of(cube: Cube, bins: WavelengthBins) -> slice:
    start = int(np.round(bins.place(cube.wavelength[:1])[0]))
    stop = start + cube.bins.n_wave
    if start < 0 or stop > bins.n_wave or not bins.part(start, stop).offset(cube.wavelength) < SAME_BINS:
        raise ValueError(
            f"join: expected the bins of an arm among those of the joined cube, got {cube.wavelength[0]:.6g} to "
            f"{cube.wavelength[-1]:.6g} Angstrom beside {bins.edges[0]:.6g} to {bins.edges[-1]:.6g}"
        )
    return slice(start, stop)


def _joined_fibres(
    fibres: Sequence[FibreSpectra], stretches: Sequence[_Stretch]
) -> tuple[FibreSpectra, list[list[Values]]]:
    masks = [np.asarray(arm.mask) for arm in fibres]
    bits = [mask if arm.bits is None else np.asarray(arm.bits) | mask for arm, mask in zip(fibres, masks, strict=True)]
    arms = [_Spectra.of(arm, np.broadcast_to(mask, arm.flux.shape)) for arm, mask in zip(fibres, bits, strict=True)]
    joined, shares = _joined(arms, stretches)
    mask = np.concatenate([_joined_bits([masks[number][at] for number, at in stretch.arms]) for stretch in stretches])
    flagged = None if all(arm.bits is None for arm in fibres) else joined.mask & ~mask
    moved = [fibres[number].places.part(at).moved for number, at in (stretch.arms[0] for stretch in stretches)]
    known, places = [values for values in moved if values is not None], fibres[0].places
    places = dataclasses.replace(places, moved=np.concatenate(known, axis=1)) if known else places
    return dataclasses.replace(fibres[0], **joined.fields(), mask=mask, bits=flagged, places=places), shares


def _joined(
    arms: Sequence[_Spectra], stretches: Sequence[_Stretch], fibres: FibreSpectra | None = None
) -> tuple[_Spectra, list[list[Values]]]:
    """The spectra of all bins, and in each stretch the shares of its arms, as the mean over spectra.

    Bins of one arm alone are copied. `fibres`: joined spectra, of which bins that several arms see are made; they know
    the shares.
    """
    parts, shares = list[_Spectra](), list[list[Values]]()
    for stretch in stretches:
        spectra = [arms[number].part(at) for number, at in stretch.arms]
        mask = _joined_bits([arm.mask for arm in spectra])
        if len(spectra) == 1:
            parts.append(spectra[0])
            shares.append([np.ones(stretch.bins.stop - stretch.bins.start)])
        elif fibres is not None:
            parts.append(_remade(spectra[0], fibres, stretch.bins, mask))
        else:
            weights = _weights(spectra)
            shares.append([weight.reshape(-1, weight.shape[-1]).mean(axis=0) for weight in weights])
            parts.append(_mean(spectra, weights, mask))
    variances = [part.variance for part in parts if part.variance is not None]
    return _Spectra(
        {name: np.concatenate([part.values[name] for part in parts], axis=-1) for name in _names(parts)},
        np.concatenate(variances, axis=-1) if len(variances) == len(parts) else None,
        np.concatenate([part.mask for part in parts], axis=-1),
    ), shares


def _names(spectra: Sequence[_Spectra]) -> list[str]:
    return [name for name in spectra[0].values if all(name in arm.values for arm in spectra)]


def _weights(arms: Sequence[_Spectra]) -> list[Values]:
    """Each arm's weight; they add up to 1 in every bin of every spectrum."""
    inverses = []
    for arm in arms:
        variance = np.asarray(1.0 if arm.variance is None else arm.variance, dtype=np.float64)
        inverse = 1 / np.where(variance > 0, variance, np.inf)
        inverses.append(np.where(arm.mask == 0, inverse, 0.0))
    total = np.sum(inverses, axis=0)
    return [np.where(total > 0, weight / np.where(total > 0, total, 1), 1 / len(inverses)) for weight in inverses]


def _mean(arms: Sequence[_Spectra], weights: Sequence[Values], mask: Int[ndarray, "... _"]) -> _Spectra:
    def added(values: Sequence[Values], power: int) -> Values:
        pairs = zip(values, weights, strict=True)
        total = sum(np.asarray(spectra, np.float64) * weight**power for spectra, weight in pairs)
        return np.asarray(total).astype(values[0].dtype)

    variances = [arm.variance for arm in arms if arm.variance is not None]
    means = {name: added([arm.values[name] for arm in arms], 1) for name in _names(arms)}
    return _Spectra(means, added(variances, 2) if len(variances) == len(arms) else None, mask)


def _joined_bits(masks: Sequence[Int[ndarray, "... _"]]) -> Int[ndarray, "... _"]:
    """0 where an arm is good, else the bits of all."""
    good = np.any([mask == 0 for mask in masks], axis=0)
    return np.where(good, 0, np.bitwise_or.reduce(masks)).astype(masks[0].dtype)


def _remade(alike: _Spectra, fibres: FibreSpectra, bins: slice, mask: Int[ndarray, "... _"]) -> _Spectra:
    """Voxels made of some bins of the spectra of fibres without the flagged ones, of the dtypes that an arm has."""
    spectra, weights = _Spectra.of(fibres, np.asarray(fibres.mask)).part(bins), fibres.weights
    good = fibres.good[:, bins]
    scale = None if good.all() else np.asarray(weights.regained(jnp.asarray(good, spectra.values["flux"].dtype)))

    def remade(images: Callable[[Any], Any], values: Values, like: Values, power: int) -> Values:
        if scale is None:
            return np.asarray(images(jnp.asarray(values))).astype(like.dtype, copy=False)
        return (np.asarray(images(jnp.asarray(values * good.astype(values.dtype)))) * scale**power).astype(like.dtype)

    names = _names([spectra, alike])
    values = {name: remade(weights.images, spectra.values[name], alike.values[name], 1) for name in names}
    variance = None
    if spectra.variance is not None and alike.variance is not None:
        variance = remade(weights.variances, spectra.variance, alike.variance, 2)
    return _Spectra(values, variance, mask)


def _velocity(cubes: Sequence[Cube]) -> Float[ndarray, "y x"] | None:
    light = weighted = np.zeros(cubes[0].shape[:2])
    for cube in cubes:
        if cube.mean_v_los is None:
            return None
        velocity, flux = np.asarray(cube.mean_v_los, dtype=np.float64), np.asarray(cube.flux)
        white = np.maximum(flux @ np.diff(cube.wave_edges).astype(flux.dtype), 0.0) * np.isfinite(velocity)
        light, weighted = light + white, weighted + white * np.nan_to_num(velocity)
    mean = np.where(light > 0, weighted / np.where(light > 0, light, 1.0), np.nan)
    return mean.astype(np.asarray(cubes[0].mean_v_los).dtype)
