"""Stage `fibres`: the light that the instrument's fibres collect through the PSF, in the place of stage `psf`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import COSMIC_RAY, DETECTOR_GAP, NO_DATA, OUTSIDE_APERTURE, SATURATED
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    AbstractSpectraStage,
    PaintedCube,
    Spatial,
    StageReport,
    Voxels,
    WavelengthSpatial,
    refuse_options,
)
from rubix_like.forward.stages.optics import psf_report, psf_widths
from rubix_like.instrument.fibres.bundle import cube_weights, displaced_nodes, displacements
from rubix_like.instrument.fibres.fibre_map import FibreMap, FixedFibreMap, image_width, margin_for
from rubix_like.instrument.field_psf import FieldPSF, PSFTerms
from rubix_like.instrument.painting import SeenWidth, seen_width
from rubix_like.instrument.psf import PSF
from rubix_like.runtime.mesh.bin_split import per_bin


class FibreStage(AbstractCubeStage):
    """Spectra (fibre, wave) of the light in every fibre of every exposure: `instrument.psf`, with the width of the
    exposure's seeing, integrated over the fibre's disc, times the exposure's transparency.

    Fibres are a column of spaxels for the stages that follow. Sums that are not of one wavelength (the moments) are
    seen through the PSF in the middle of the detector's range.
    """

    psf: PSF
    optics: FibreMap | FixedFibreMap
    terms: PSFTerms | None
    seen: SeenWidth | None
    field: FieldPSF | None
    shares: Float[Array | ndarray, "wave node"] | None = eqx.field(metadata=per_bin(0))
    middle: Float[Array | ndarray, ""]
    bundle: str = eqx.field(static=True)
    n_exposure: int = eqx.field(static=True)
    margin: int = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "FibreStage":
        """The instrument's fibres behind its PSF; no options. Raises ConfigError without either."""
        refuse_options("fibres", options)
        instrument, settings = setup.instrument, setup.config.instrument
        psf, places = instrument.psf, instrument.fibres
        if psf is None or places is None:
            raise ConfigError("instrument.fibres: expected a bundle of fibres behind a PSF, got none; give both")
        wavelength, footprint = instrument.bins.wavelength, instrument.footprint
        middle = np.asarray(wavelength[len(wavelength) // 2])
        psf, shift = _refracted(setup, psf, places)
        beside = 0.0 if shift is None else float(np.abs(shift).max())
        margin = margin_for(places, footprint, psf.reach, beside)
        painted = footprint.painted(margin, setup.painting.cells)
        field = None if instrument.psf_field is None else dataclasses.replace(instrument.psf_field, psf=psf)
        optics: FibreMap | FixedFibreMap
        if settings.psf is not None and not settings.psf.is_profile:
            optics = FixedFibreMap.build(settings.psf, field or psf, places, painted, shift, float(middle))
        else:
            optics = FibreMap.build(settings, places, painted, setup.painting, shift)
        return cls(
            psf=psf,
            optics=optics,
            terms=setup.psf_terms,
            seen=seen_width(settings, setup.painting, float(middle)),
            field=field,
            shares=None if psf.nodes is None else psf.nodes.shares(wavelength, np),
            middle=middle,
            bundle=places.bundle,
            n_exposure=places.n_exposure,
            margin=margin,
        )

    def spatial(self, parameters: Parameters) -> Spatial | WavelengthSpatial | None:
        """Images to fibres (fibre, 1, k): the same for all wavelengths, or with a PSF that follows them."""
        matrices, shares, terms = self._matrices(parameters), self.shares, self.terms
        if shares is None:
            return lambda images: _through(matrices[0], images)
        if terms is None:
            return None
        of_terms = jnp.einsum("kn,nfc->kfc", jnp.asarray(terms.mix, matrices.dtype), matrices)

        def groups(images: Float[Array, "y x k"], sizes: tuple[int, ...]) -> Float[Array, "fibre 1 k"]:
            parts = jnp.split(images, np.cumsum(sizes)[:-1], axis=2)
            spectra = [_through(matrix, part) for matrix, part in zip(of_terms, parts, strict=True)]
            return jnp.concatenate(spectra, axis=2)

        return WavelengthSpatial(
            middle=self._broadband(matrices),
            bins=lambda images: _at_wavelengths(matrices, jnp.asarray(shares), images),
            terms=groups,
            shares=terms.shares(jnp.asarray(shares)),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The fibres' spectra, as a column of spaxels."""
        matrices, footprint = self._matrices(parameters), cube.footprint
        images, everywhere = footprint.images(cube.flux), self._broadband(matrices)
        if self.shares is None:
            flux = _through(matrices[0], images)
        else:
            flux = _at_wavelengths(matrices, jnp.asarray(self.shares), images)
        fibres = Footprint(flux.shape[0], 1, footprint.pixel_scale, fibres=True)
        moments = everywhere(footprint.images(cube.moments))
        return dataclasses.replace(cube, flux=fibres.elements(flux), moments=fibres.elements(moments), footprint=fibres)

    def report(self) -> StageReport:
        """The fibres, and the PSF in front of them."""
        entries: dict[str, int | float | str] = {
            "fibre_bundle": self.bundle,
            "fibre_diameter": 2 * self.optics.radius,
            "fibre_spectra": int(np.size(self.optics.exposure)),
            "fibre_exposures": self.n_exposure,
        }
        if self.optics.shift is not None:
            entries["fibre_refraction"] = float(np.linalg.norm(np.asarray(self.optics.shift), axis=-1).max())
        return psf_report(self.psf, self.field, self.seen, entries)

    def _matrices(self, parameters: Parameters) -> Float[Array, "node fibre cell"]:
        widths = psf_widths(parameters)
        if self.field is None:
            return self.optics.matrices(self.psf, widths)
        return self.optics.matrices_over_field(self.field, widths)

    def _broadband(self, matrices: Float[Array, "node fibre cell"]) -> Spatial:
        nodes = self.psf.nodes
        if nodes is None:
            return lambda images: _through(matrices[0], images)
        share = nodes.shares(jnp.asarray(self.middle)[None])[0]
        middle = jnp.einsum("n,nfc->fc", share.astype(matrices.dtype), matrices)
        return lambda images: _through(middle, images)


def _refracted(setup: Setup, psf: PSF, places: FibrePlaces) -> tuple[PSF, Float[ndarray, "node fibre 2"] | None]:
    """The PSF with nodes for the atmosphere's refraction, and the displacement of the light there; without
    refraction as it is."""
    settings, bins = setup.config.instrument, setup.instrument.bins
    if settings.fibres is None or settings.fibres.refraction is None or settings.psf is None:
        return psf, None
    refraction = settings.fibres.refraction.of_exposures(len(settings.fibres.dithers))
    is_profile = settings.psf.is_profile
    width = settings.psf.narrowest if is_profile else image_width(settings.psf, bins.wavelength[[0, -1]])
    narrowest = width * float(places.seeing.min())
    nodes = displaced_nodes(refraction, bins, narrowest, psf.nodes)
    moved = displacements(refraction, bins, nodes.wavelength)[places.exposure - 1]
    return dataclasses.replace(psf, nodes=nodes), np.swapaxes(moved, 0, 1)


def _through(matrix: Float[Array, "fibre cell"], images: Float[Array, "y x k"]) -> Float[Array, "fibre 1 k"]:
    flat = images.reshape(-1, images.shape[2])
    return jnp.matmul(matrix.astype(images.dtype), flat, precision=lax.Precision.HIGHEST)[:, None, :]


def _at_wavelengths(
    matrices: Float[Array, "node fibre cell"], shares: Float[Array, "k node"], images: Float[Array, "y x k"]
) -> Float[Array, "fibre 1 k"]:
    """Image k through the sum over nodes of shares[k] times each node's map."""
    parts = [
        _through(matrix, images * shares[None, None, :, node].astype(images.dtype))
        for node, matrix in enumerate(matrices)
    ]
    return sum(parts[1:], start=parts[0])


_LEAST = 0.5
"""Of the weights in a spaxel that must be those of good fibres."""


class FibreCube(AbstractSpectraStage):
    """Spectra are calibrated for the transparency of their exposure, then every spaxel is a weighted sum of those near
    it (`instrument.fibres.cube`): its variance is the sum of the fibres' with the weights squared, and what no fibre
    reaches is masked. The spectra go along.

    Bins of spectra that a systematic error flags are left out, and the weights of the others in a spaxel keep their
    sum; it has the flags where less than half of them is left.
    """

    weights: CubeWeights
    transparency: Float[Array | ndarray, " fibre"]
    footprint: Footprint
    method: str = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "FibreCube":
        """The map of `instrument.fibres.cube`; no options. Raises ConfigError without fibres, or where they lie
        outside the field."""
        refuse_options("fibre_cube", options)
        instrument, settings = setup.instrument, setup.config.instrument.fibres
        if settings is None or instrument.fibres is None:
            raise ConfigError("instrument.fibres: expected a bundle of fibres behind a PSF, got none; give both")
        return cls(
            weights=cube_weights(settings.cube, instrument.fibres, instrument.footprint),
            transparency=instrument.fibres.transparency,
            footprint=instrument.footprint,
            method=settings.cube.method,
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube, and beside it the spectra that it is made of."""
        clear = jnp.asarray(self.transparency, cube.flux.dtype)[:, None]
        flux, moments = cube.flux / clear, cube.moments / clear.astype(cube.moments.dtype)
        variance = None if cube.variance is None else cube.variance / clear**2
        truth = None if cube.truth is None else cube.truth / clear
        errors = {name: error / clear for name, error in cube.contributions.items()}
        good, scale, bits = (None, None, None) if cube.bits is None else self._good(cube.bits, flux.dtype)
        elements, weights = self.footprint.elements, self.weights

        def seen(spectra: Float[Array, "fibre wave"]) -> Float[Array, "spaxel wave"]:
            if good is None or scale is None:
                return elements(weights.images(spectra))
            return elements(weights.images(spectra * good) * scale)

        of_cube = None
        if variance is not None:
            of_cube = weights.variances(variance if good is None else variance * good)
            of_cube = of_cube if scale is None else of_cube * scale**2
        return dataclasses.replace(
            cube,
            flux=seen(flux),
            moments=elements(weights.images(moments)),
            variance=None if of_cube is None else elements(of_cube),
            truth=None if truth is None else seen(truth),
            bits=None if bits is None else elements(bits),
            contributions={name: seen(error) for name, error in errors.items()},
            footprint=self.footprint,
            fibres=Voxels(flux, variance, truth, cube.bits, errors or None),
        )

    def _good(
        self, bits: Int[Array, "fibre wave"], dtype: jnp.dtype
    ) -> tuple[Float[Array, "fibre wave"], Float[Array, "y x wave"], Int[Array, "y x wave"]]:
        """1 for good bins of the spectra, by what the weights of these grow in each voxel, and the voxels' flags."""
        good = (bits == 0).astype(dtype)
        scale = self.weights.regained(good)
        few = (scale == 0) | (scale * _LEAST > 1)
        found = jnp.zeros(few.shape, jnp.int32)
        for bit in (SATURATED, COSMIC_RAY, NO_DATA, DETECTOR_GAP):
            there = self.weights.images(((bits & bit) > 0).astype(self.weights.weights.dtype)) > 0
            found = found | jnp.where(few & there, jnp.int32(bit), jnp.int32(0))
        return good, scale, found

    def report(self) -> StageReport:
        """The bit of spaxels without a fibre, and the recipe."""
        seen = np.asarray(self.weights.coverage) > 0
        bits = None if seen.all() else np.where(seen, 0, OUTSIDE_APERTURE).astype(np.int32)
        return StageReport(spaxel_bits=bits, meta={"fibre_cube": self.method})
