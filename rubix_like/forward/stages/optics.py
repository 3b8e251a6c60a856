"""Stages on the cube of telescope and spectrograph: PSF, line spread, aperture."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy import ndarray
from pydantic import ValidationError
from scipy.special import ndtr

from rubix_like.config import LSFSettings
from rubix_like.config.messages import explain
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.meta import OUTSIDE_APERTURE, SPREAD_FROM_BEYOND
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    AbstractSpectraStage,
    PaintedCube,
    Spatial,
    StageReport,
    WavelengthSpatial,
    refuse_noisy,
    refuse_options,
)
from rubix_like.instrument.blur import blur, blur_each, blur_groups, blur_separable
from rubix_like.instrument.detector import bin_geometry, spread_matrix
from rubix_like.instrument.field_psf import FieldPSF, PSFTerms
from rubix_like.instrument.painting import SeenWidth, seen_width
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.physics.gaussian import reach_of
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import percent


class PSFStage(AbstractCubeStage):
    """Every image convolved with `instrument.psf`, which also takes the painted margin off; the identity for null.

    The margin holds the fraction `psf.enclosed` of the light of a point source at the configured widths; what lies
    beyond is given back to the spaxels within. Images that are not of one wavelength (the moments) are convolved with
    the PSF in the middle of the detector's range. `field`: the PSFs of all places, where it varies over the field.
    """

    psf: PSF | None
    terms: PSFTerms | None
    seen: SeenWidth | None
    field: FieldPSF | None
    shares: Float[Array | ndarray, "wave node"] | None = eqx.field(metadata=per_bin(0))
    middle: Float[Array | ndarray, ""]
    margin: int = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "PSFStage":
        """The instrument's PSF; no options."""
        refuse_options("psf", options)
        instrument = setup.instrument
        wavelength, psf = instrument.bins.wavelength, instrument.psf
        middle = np.asarray(wavelength[len(wavelength) // 2])
        seen = seen_width(setup.config.instrument, setup.painting, float(middle))
        shares = None if psf is None or psf.nodes is None else psf.nodes.shares(wavelength, np)
        return cls(
            psf=psf,
            terms=setup.psf_terms,
            seen=seen,
            field=instrument.psf_field,
            shares=shares,
            middle=middle,
            margin=instrument.psf_reach,
        )

    def spatial(self, parameters: Parameters) -> Spatial | WavelengthSpatial | None:
        """The convolution: with one PSF, or with one that follows wavelength."""
        psf, terms = self.psf, self.terms
        if psf is None:
            return lambda images: images
        middle = self.broadband(parameters)
        if self.shares is None:
            return middle
        if terms is None:
            return None
        at_nodes, shares, cells = self._at_nodes(parameters), jnp.asarray(self.shares), psf.painting.cells
        of_terms = terms.images(at_nodes) if self.field is None else jax.vmap(terms.images)(at_nodes)

        def groups(images: Float[Array, "y x k"], sizes: tuple[int, ...]) -> Float[Array, "inner_y inner_x k"]:
            return self._blurred(images, of_terms, lambda images, psfs: blur_groups(images, psfs, sizes, cells))

        return WavelengthSpatial(
            middle=middle,
            bins=lambda images: self._blurred(
                images, at_nodes, lambda part, psfs: blur_each(part, psfs, shares, cells)
            ),
            terms=groups,
            shares=terms.shares(shares),
        )

    def broadband(self, parameters: Parameters) -> Spatial:
        """The convolution with the PSF in the middle of the detector's range."""
        psf = self.psf
        if psf is None:
            return lambda images: images
        widths, field, cells = psf_widths(parameters), self.field, psf.painting.cells
        if psf.is_separable:
            weights = psf.axis_weights(widths) if field is None else field.at_each(widths, psf.axis_weights)
            return lambda images: self._blurred(images, weights, lambda part, psfs: blur_separable(part, psfs, cells))
        image = psf.image_at(widths, self.middle) if field is None else field.images_at(widths, self.middle)
        return lambda images: self._blurred(images, image, lambda part, psfs: blur(part, psfs, cells))

    def _at_nodes(self, parameters: Parameters) -> Float[Array, "*place node side side"]:
        assert self.psf is not None
        widths = psf_widths(parameters)
        return self.psf.images(widths) if self.field is None else self.field.images(widths)

    def _blurred(
        self, images: Float[Array, "y x k"], kernels: Any, blur_one: Callable[[Array, Any], Array]
    ) -> Float[Array, "inner_y inner_x k"]:
        """Images convolved with one PSF, or with those of all places."""
        kernels = jax.tree.map(lambda leaf: leaf.astype(images.dtype), kernels)
        return blur_one(images, kernels) if self.field is None else self.field.blurred(images, kernels, blur_one)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The field without its margin, convolved."""
        psf = self.psf
        if psf is None:
            return cube
        everywhere, cells = self.broadband(parameters), psf.painting.cells
        images, moments = cube.footprint.images(cube.flux), cube.footprint.images(cube.moments)
        if self.shares is None:
            flux = everywhere(images)
        else:
            shares = jnp.asarray(self.shares)
            at_nodes = self._at_nodes(parameters)
            flux = self._blurred(images, at_nodes, lambda part, psfs: blur_each(part, psfs, shares, cells))
        seen = cube.footprint.within(self.margin, cells)
        flux, moments = seen.elements(flux), seen.elements(everywhere(moments))
        return dataclasses.replace(cube, flux=flux, moments=moments, footprint=seen)

    def report(self) -> StageReport:
        """The kind of PSF, its width and the one that stars are seen with, and the light that is given back."""
        if self.psf is None:
            return StageReport()
        return psf_report(self.psf, self.field, self.seen, {})


def psf_report(
    psf: PSF, field: FieldPSF | None, seen: SeenWidth | None, entries: Mapping[str, int | float | str]
) -> StageReport:
    """The report on a PSF, beside its widths, and on those that stars are seen with, with further entries."""
    meta = {"psf_kind": psf.kind, "psf_lost": float(psf.lost), "psf_cells": psf.painting.cells}
    meta |= entries if field is None else {"psf_places": field.n_place, **entries}
    if seen is None:
        return StageReport(meta=meta)
    return StageReport(meta=meta | seen.entries(), notes=seen.notes(psf.painting.deposit, psf.painting.cells))


def psf_widths(parameters: Parameters) -> PSFParameters:
    """The PSF's parameters; without any (the PSF given as an image) all None."""
    widths = parameters.instrument.psf
    return PSFParameters() if widths is None else PSFParameters(**vars(widths))


_SPAXELS_AT_ONCE = 64


class DegradeLSF(AbstractSpectraStage):
    """Spectra convolved with a Gaussian that takes the effective LSF to a wider one, bins included.

    FWHM_kernel^2 = FWHM_wanted(lambda)^2 - FWHM_effective(lambda)^2 at each detector bin; its variance is exact however
    narrow it is against a bin, and light is conserved. Beyond the detector's ends spectra go on as their last bin; what
    is spread from there is flagged. Before `noise`, so that the noise stays that of each voxel.

    `weights[q, l]` takes the light of bin l - reach + q to the flux density of bin l.
    """

    weights: Float[Array | ndarray, "block wave"] = eqx.field(metadata=per_bin(pad="zero"))
    lsf_fwhm: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    bits: Int[Array | ndarray, " wave"] = eqx.field(metadata=per_bin(pad="zero"))
    n_sharper: Int[Array | ndarray, ""]

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "DegradeLSF":
        """The options are those of `instrument.lsf`: fwhm, polynomial, or wavelength with fwhm or resolving_power."""
        refuse_options("degrade_lsf", options, tuple(LSFSettings.model_fields))
        try:
            wanted = LSFSettings.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(explain(error, LSFSettings, "pipeline: stage 'degrade_lsf'")) from error
        bins = setup.instrument.bins
        effective = setup.lsf_fwhm
        width = np.diff(bins.edges)
        kernel = np.sqrt(np.maximum(instrument_fwhm(wanted, bins.wavelength) ** 2 - effective**2, 0.0))
        reach = reach_of(float((kernel / width).max()) / FWHM_PER_SIGMA)
        if reach >= bins.n_wave:
            raise ConfigError(
                f"pipeline: stage 'degrade_lsf': expected a line spread narrower than the detector's {bins.n_wave} "
                f"bins, got one that reaches over {reach} bins; take a smaller fwhm or more of instrument.wavelength"
            )
        padded = np.pad(kernel, reach, mode="edge")[:, None]
        _, _, geometry = bin_geometry(bins, 1, reach)
        matrix = spread_matrix(padded, geometry, np, ndtr)[:, 0, :]
        beyond = np.arange(bins.n_wave)
        light_from_beyond = (kernel > 0) & (np.minimum(beyond, beyond[::-1]) < 3.0 * kernel / width / FWHM_PER_SIGMA)
        return cls(
            weights=matrix * np.pad(width, reach, mode="edge")[np.arange(2 * reach + 1)[:, None] + beyond[None, :]],
            lsf_fwhm=np.sqrt(kernel**2 + effective**2),
            bits=np.where(light_from_beyond, SPREAD_FROM_BEYOND, 0).astype(np.int32),
            n_sharper=np.asarray(np.sum(kernel == 0), dtype=np.int32),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube at the lower resolution; raises ConfigError after noise."""
        why = "it would correlate the noise of neighbouring bins, which no variance can say"
        refuse_noisy("degrade_lsf", cube, why)
        weights = jnp.asarray(self.weights)
        n_block, n_wave = weights.shape
        longer = cube.split.with_neighbours(cube.flux, n_block // 2)

        def spread(spectrum: Float[Array, " longer"]) -> Float[Array, " wave"]:
            def add(total: Array, shifted: tuple[Array, Array]) -> tuple[Array, None]:
                start, row = shifted
                return total + row * lax.dynamic_slice(spectrum, (start,), (n_wave,)), None

            starts = jnp.arange(n_block, dtype=jnp.int32)
            return lax.scan(add, jnp.zeros_like(spectrum, shape=(n_wave,)), (starts, weights))[0]

        flux = lax.map(spread, longer, batch_size=_SPAXELS_AT_ONCE)
        return eqx.tree_at(lambda c: c.flux, cube, flux)

    def report(self) -> StageReport:
        """The new effective LSF, the flagged ends, and where the cube was coarser already."""
        widths, sharper = np.asarray(self.lsf_fwhm), int(self.n_sharper)
        note = Note(
            "lsf.coarser_than_wanted",
            f"degrade_lsf: the cube is already coarser than wanted in {percent(sharper / len(widths))} of the bins, "
            f"which stay as they are; the file's LSF table holds the effective width",
            WARNING,
        )
        return StageReport(
            wave_bits=np.asarray(self.bits), lsf_fwhm=widths, meta={"lsf_degraded": True}, notes=(note,) * (sharper > 0)
        )


class Aperture(AbstractSpectraStage):
    """Spaxels whose centre lies outside `instrument.aperture` hold no light (noise comes after) and are flagged.

    `inside`: those within; None where all are.
    """

    inside: Bool[Array | ndarray, "y x"] | None

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Aperture":
        """The instrument's aperture (null: the whole field); no options."""
        refuse_options("aperture", options)
        inside = np.asarray(setup.instrument.inside)
        return cls(inside=None if inside.all() else inside)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with no flux outside."""
        if self.inside is None:
            return cube
        inside = cube.footprint.elements(jnp.asarray(self.inside))
        flux = jnp.where(inside[:, None], cube.flux, jnp.zeros((), cube.flux.dtype))
        return eqx.tree_at(lambda c: c.flux, cube, flux)

    def report(self) -> StageReport:
        """The bit for 'outside the aperture'."""
        if self.inside is None:
            return StageReport()
        return StageReport(spaxel_bits=np.where(np.asarray(self.inside), 0, OUTSIDE_APERTURE).astype(np.int32))
