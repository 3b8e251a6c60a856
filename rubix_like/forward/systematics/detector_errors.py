"""Stages `saturation`, `cosmic_rays` and `missing`: what the detector itself does to single bins of spectra."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.config.sections.noise import CosmicRaysSettings, MissingSettings, SaturationSettings
from rubix_like.cube.meta import COSMIC_RAY, DETECTOR_GAP, NO_DATA, SATURATED
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube, StageReport
from rubix_like.forward.stages.noise import ExposureNoise
from rubix_like.forward.systematics.systematic import (
    AbstractSystematic,
    ErrorRecord,
    error_key,
    exposure_numbers,
    flagged,
    place_numbers,
    systematics_of,
    with_error,
)
from rubix_like.physics.numbered_random import numbered_uniform
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.notes import WARNING, Note


class Saturation(AbstractSystematic):
    """Light beyond what a pixel holds in one exposure is lost, and the voxel is flagged.

    The electrons are those of source, sky and dark current, with their noise; `level` are those of a voxel in all
    exposures together.
    """

    noise: ExposureNoise
    level: Float[Array | ndarray, ""]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "saturation"
    key_number: ClassVar[int | None] = 1003

    @classmethod
    def of(cls, setup: Setup, settings: SaturationSettings, record: ErrorRecord) -> "Saturation":
        """Raises ConfigError without `noise.exposure`."""
        noise, instrument = setup.config.noise, setup.config.instrument
        if noise is None or noise.exposure is None:
            raise ConfigError(
                "systematics.saturation: expected noise.exposure, which says how many electrons there are, got none; "
                "give it, or set the section to null"
            )
        model = ExposureNoise.build(noise.exposure, instrument, setup.instrument.bins, setup.instrument.fibres)
        assert instrument.detector is not None
        level = settings.level * noise.exposure.count * instrument.detector.pixels_per_voxel
        return cls(noise=model, level=np.asarray(level), record=record)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the most light that its pixels hold."""
        longer = self.noise.longer(parameters).reshape(-1, 1)
        gain, background = (longer * jnp.asarray(curve)[None, :] for curve in (self.noise.gain, self.noise.background))
        most = (self.level - background) / gain
        full = cube.flux >= most
        change = jnp.where(full, most - cube.flux, jnp.zeros_like(cube.flux))
        return flagged(with_error(cube, self.name, change, self.record), full, SATURATED)

    def report(self) -> StageReport:
        """The bit that it may set."""
        return StageReport(voxel_bits=SATURATED)


class CosmicRays(AbstractSystematic):
    """Hits in a part of the voxels, with exponentially distributed strengths in units of the noise; a part of them is
    flagged."""

    rate: Float[Array | ndarray, ""]
    strength: Float[Array | ndarray, ""]
    part_flagged: Float[Array | ndarray, ""]
    length: int = eqx.field(static=True)
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "cosmic_rays"
    key_number: ClassVar[int | None] = 1004

    @classmethod
    def of(cls, setup: Setup, settings: CosmicRaysSettings, record: ErrorRecord) -> "CosmicRays":
        """Raises ConfigError without noise."""
        if setup.config.noise is None:
            raise ConfigError(
                "systematics.cosmic_rays: expected noise, which their strength is given in, got noise: null; give the "
                "section noise, or set cosmic_rays to null"
            )
        rate, strength, part = map(np.asarray, (settings.rate, settings.strength, settings.flagged))
        return cls(rate=rate, strength=strength, part_flagged=part, length=settings.length, record=record)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the hits."""
        if cube.variance is None:
            raise ConfigError("pipeline.cube: expected 'noise' before 'cosmic_rays', got a cube without variance")
        footprint, of_all = cube.footprint, error_key(key, self.record)
        keys = jax.vmap(lambda row: jax.random.fold_in(of_all, row))(jnp.arange(footprint.n_y))
        hits, found = lax.map(lambda row: self._row(row[0], row[1], cube), (keys, footprint.rows(cube.flux)))
        noisy = cube.variance > 0  # the root has no derivative at 0
        sigma = jnp.sqrt(jnp.where(noisy, cube.variance, jnp.ones_like(cube.variance)))
        sigma = jnp.where(noisy, sigma, jnp.zeros_like(sigma))
        hit = with_error(cube, self.name, footprint.elements(hits) * sigma, self.record)
        return flagged(hit, footprint.elements(found), COSMIC_RAY)

    def _row(
        self, key: PRNGKeyArray, like: Float[Array, "x wave"], cube: PaintedCube
    ) -> tuple[Float[Array, "x wave"], Bool[Array, "x wave"]]:
        """Strengths of the hits in a row of spectra, and which of its bins are flagged.

        A hit begins where two uniform numbers are below the root of the rate: one of 23 bits would be too coarse.
        """
        n_x, n_wave = like.shape
        first = cube.split.first() + jnp.arange(n_wave, dtype=jnp.int32)
        keys = jax.random.split(key, 4)
        root = jnp.sqrt(jnp.asarray(self.rate, like.dtype))
        strength, found = jnp.zeros_like(like), jnp.zeros(like.shape, bool)
        for step in range(self.length):
            begins = (first - step)[None, :] * n_x + jnp.arange(n_x, dtype=jnp.int32)[:, None]
            drawn = [numbered_uniform(each, begins, like.dtype) for each in keys]
            hit = (drawn[0] < root) & (drawn[1] < root)
            strength = strength - jnp.where(hit, jnp.log(drawn[2]), jnp.zeros_like(like))
            found = found | (hit & (drawn[3] < self.part_flagged))
        return strength * self.strength, found

    def report(self) -> StageReport:
        """The bit that it may set."""
        return StageReport(voxel_bits=COSMIC_RAY)


class Missing(AbstractSystematic):
    """Voxels without data: regions (DQ 64) and gaps of the detector (DQ 128), in which the flux is 0.

    | field | shape | |
    |---|---|---|
    | spectra | (region, element) | which spectra a region has |
    | bins | (region, wave) | which bins |
    | gaps | (wave,) | which bins lie in a gap, or partly |
    """

    spectra: Bool[Array | ndarray, "region element"]
    bins: Bool[Array | ndarray, "region wave"] = eqx.field(metadata=per_bin())
    gaps: Bool[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    record: ErrorRecord = eqx.field(static=True)
    beyond: tuple[str, ...] = eqx.field(static=True, default=())
    name: ClassVar[str] = "missing"
    key_number: ClassVar[int | None] = 1009

    @classmethod
    def of(cls, setup: Setup, settings: tuple[MissingSettings, ...], record: ErrorRecord) -> "Missing":
        """The regions, and the gaps of `systematics.gaps`. Raises ConfigError for one that lies outside of the field,
        the bundle or the detector; notes say so of one that does in part."""
        edges, n_bin = setup.instrument.bins.edges, setup.instrument.bins.n_wave
        spectra = np.zeros((len(settings), len(place_numbers(setup))), bool)
        bins, gaps = np.zeros((len(settings), n_bin), bool), np.zeros(n_bin, bool)
        for number, region in enumerate(settings):
            spectra[number], bins[number] = _spectra_of(region, number, setup), _bins_in(region.wavelength, edges)
            if not bins[number].any():
                raise ConfigError(
                    f"systematics.missing.{number}.wavelength: expected one that the detector has, got none"
                )
        for span in systematics_of(setup).gaps:
            gap = _bins_in(span, edges)
            if not gap.any():
                raise ConfigError(f"systematics.gaps: expected gaps in the detector's range, got {list(span)} outside")
            gaps |= gap
        beyond = tuple(note for number, region in enumerate(settings) for note in _beyond(region, number, setup))
        return cls(spectra=spectra, bins=bins, gaps=gaps, record=record, beyond=beyond)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube without what is missing."""
        nothing = jnp.zeros((), cube.flux.dtype)
        gap = jnp.broadcast_to(jnp.asarray(self.gaps)[None, :], cube.flux.shape)
        out, gone = cube, gap
        for spectra, bins in zip(self.spectra, self.bins, strict=True):
            region = jnp.asarray(spectra)[:, None] & jnp.asarray(bins)[None, :]
            out, gone = flagged(out, region, NO_DATA), gone | region
        out = flagged(out, gap, DETECTOR_GAP)
        truth = cube.flux if self.record.truth and cube.truth is None else cube.truth
        return dataclasses.replace(out, flux=jnp.where(gone, nothing, cube.flux), truth=truth)

    def report(self) -> StageReport:
        """The bits that it sets, and what regions have beyond the field."""
        gap = DETECTOR_GAP if np.asarray(self.gaps).any() else 0
        return StageReport(voxel_bits=gap | (NO_DATA if len(self.spectra) else 0), notes=self.beyond)


def _bins_in(span: tuple[float, float] | None, edges: Float[ndarray, " edge"]) -> Bool[ndarray, " wave"]:
    if span is None:
        return np.ones(len(edges) - 1, bool)
    return (edges[1:] > span[0]) & (edges[:-1] < span[1])


def _spectra_of(region: MissingSettings, number: int, setup: Setup) -> Bool[ndarray, " element"]:
    fibres, footprint = setup.instrument.fibres, setup.instrument.footprint
    wrong = ("fibres", "exposures") if fibres is None else ("x", "y")
    for name in wrong:
        if getattr(region, name) is not None:
            what = "without fibres, whose regions have x and y" if fibres is None else "whose regions have fibres"
            raise ConfigError(f"systematics.missing.{number}.{name}: expected null for an instrument {what}, got one")
    if fibres is None:
        y, x = np.divmod(np.arange(footprint.n_element), footprint.n_x)
        chosen = _within(region.x, x) & _within(region.y, y)
    else:
        chosen = np.ones(len(fibres), bool)
        for listed, numbers in ((region.fibres, place_numbers(setup)), (region.exposures, exposure_numbers(setup))):
            if listed is not None:
                chosen &= np.isin(numbers + 1, listed)
    if not chosen.any():
        raise ConfigError(f"systematics.missing.{number}: expected a region that the instrument sees, got one outside")
    return chosen


def _beyond(region: MissingSettings, number: int, setup: Setup) -> Iterator[str]:
    footprint, fibres = setup.instrument.footprint, setup.instrument.fibres
    for what, span, size in (("columns", region.x, footprint.n_x), ("rows", region.y, footprint.n_y)):
        if fibres is None and span is not None and span[1] >= size:
            yield Note(
                "systematics.beyond_detector",
                f"systematics.missing.{number}: {what} {span[0]} to {span[1]} are asked for, but the field has 0 to "
                f"{size - 1}",
                WARNING,
            )
    for what, listed, numbers in (
        ("fibres", region.fibres, place_numbers(setup)),
        ("exposures", region.exposures, exposure_numbers(setup)),
    ):
        absent = sorted(set(listed or ()) - set((numbers + 1).tolist()))
        if absent and fibres is not None:
            yield Note(
                "systematics.beyond_detector",
                f"systematics.missing.{number}: {what} {', '.join(map(str, absent))} are asked for, but do not exist",
                WARNING,
            )


def _within(span: tuple[int, int] | None, places: ndarray) -> Bool[ndarray, " element"]:
    return np.ones(len(places), bool) if span is None else (places >= span[0]) & (places <= span[1])
