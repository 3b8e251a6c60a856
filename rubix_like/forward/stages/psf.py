"""Stage `psf`: the point-spread function, on a field with a painted margin."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    PaintedCube,
    Spatial,
    StageReport,
    WavelengthSpatial,
    refuse_options,
)
from rubix_like.instrument.blur import blur, blur_each, blur_groups, blur_separable
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.painting import SeenWidth, seen_width
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.instrument.psf_terms import PSFTerms
from rubix_like.runtime.mesh.bin_split import per_bin


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
            return self._blurred(images, of_terms, lambda own, psfs: blur_groups(own, psfs, sizes, cells))

        return WavelengthSpatial(
            middle=middle,
            bins=lambda images: self._blurred(images, at_nodes, lambda own, psfs: blur_each(own, psfs, shares, cells)),
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
            return lambda images: self._blurred(images, weights, lambda own, one: blur_separable(own, one, cells))
        image = psf.image_at(widths, self.middle) if field is None else field.images_at(widths, self.middle)
        return lambda images: self._blurred(images, image, lambda own, one: blur(own, one, cells))

    def _at_nodes(self, parameters: Parameters) -> Float[Array, "*place node side side"]:
        """Images at the nodes, of each place where the PSF varies over the field."""
        assert self.psf is not None
        widths = psf_widths(parameters)
        return self.psf.images(widths) if self.field is None else self.field.images(widths)

    def _blurred(
        self, images: Float[Array, "y x k"], kernels: Any, blur_one: Callable[[Array, Any], Array]
    ) -> Float[Array, "inner_y inner_x k"]:
        """Images convolved with one PSF, or with those of all places."""
        own = jax.tree.map(lambda leaf: leaf.astype(images.dtype), kernels)
        return blur_one(images, own) if self.field is None else self.field.blurred(images, own, blur_one)

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
            flux = self._blurred(
                images, self._at_nodes(parameters), lambda own, one: blur_each(own, one, shares, cells)
            )
        seen = cube.footprint.within(self.margin, cells)
        flux, moments = seen.elements(flux), seen.elements(everywhere(moments))
        return dataclasses.replace(cube, flux=flux, moments=moments, footprint=seen)

    def report(self) -> StageReport:
        """The kind of PSF, its width and the one that stars are seen with, and the light that is given back."""
        if self.psf is None:
            return StageReport()
        meta = psf_entries(self.psf, self.field)
        if self.seen is None:
            return StageReport(meta=meta)
        meta |= self.seen.entries()
        return StageReport(meta=meta, notes=self.seen.notes(self.psf.painting.deposit, self.psf.painting.cells))


def psf_entries(psf: PSF, field: FieldPSF | None) -> dict[str, Any]:
    """What a header says of a PSF beside its widths."""
    meta = {"psf_kind": psf.kind, "psf_lost": float(psf.lost), "psf_cells": psf.painting.cells}
    return meta if field is None else meta | {"psf_places": field.n_place}


def psf_widths(parameters: Parameters) -> PSFParameters:
    """The PSF's parameters; without any (the PSF given as an image) all None."""
    widths = parameters.instrument.psf
    return PSFParameters() if widths is None else PSFParameters(**vars(widths))
