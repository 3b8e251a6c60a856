"""A PSF that varies over the field: PSFs at the places of a grid, weighted by the place that light comes from."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config import PSFSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.instrument.painting import ON_SPAXELS, Painting
from rubix_like.instrument.psf import PSF, USUAL_CHANGE, PSFParameters, node_shares, of_file
from rubix_like.runtime.arrays_on_disk import key_of, remembered
from rubix_like.runtime.mesh.mesh import varying


class FieldPSF(eqx.Module):
    """Image = sum over places k of P_k * (w_k I): each PSF P_k convolves the light I times its weight w_k there.

    The weights are bilinear between the places, constant beyond, and sum to 1, so that no light is lost; they are those
    of the spaxel that the light comes from. P_k has the widths of `Parameters.instrument.psf` times `width`, and
    1 + (beta - 1) `beta`; or it is a separate image.

    | field | shape | |
    |---|---|---|
    | psf | PSF | reach, nodes and kind of all of them |
    | y, x | (row,), (column,) | arcsec North and East of the field's centre; places row after row |
    | width | (place,) or (place, table) | FWHM relative to the parameters' |
    | beta | (place,) or (place, table) | beta - 1 relative to the parameters' |
    | image | (place, node or 1, side, side) or None | of PSFs that are images |
    | sharpening | (place,) | variance (cells^2) of the deposit that such an image is sharpened by |
    """

    psf: PSF
    y: Float[Array | ndarray, " row"]
    x: Float[Array | ndarray, " column"]
    width: Float[Array | ndarray, "place *table"]
    beta: Float[Array | ndarray, "place *table"]
    image: Float[Array | ndarray, "place node side side"] | None
    sharpening: Float[Array | ndarray, " place"]

    @classmethod
    def build(
        cls,
        settings: PSFSettings,
        pixel_scale: float,
        wavelength: Float[ndarray, " wave"],
        painting: Painting = ON_SPAXELS,
        change: float = USUAL_CHANGE,
    ) -> "FieldPSF":
        """The PSFs of settings with a `field`, all of the same reach and with the same nodes."""
        every, planned = settings.every_place, (pixel_scale, wavelength, painting, change)
        rows, columns = (np.asarray(axis) for axis in settings.field_axes)
        psf, image, sharpening = PSF.build(settings, *planned), None, np.zeros(len(every))
        if not settings.is_profile:
            apart = [PSF.build(place, *planned) for place in every]
            if settings.kind == "image":
                tables = [[] if each.nodes is None else np.asarray(each.nodes.ends).tolist() for each in apart]
                for other in (table for table in tables if table != tables[0]):
                    raise ConfigError(
                        f"instrument.psf.field: expected files with the same wavelengths at all places, got planes at "
                        f"{tables[0]} and at {other} Angstrom; give psf.wavelength, or compute them for the same ones"
                    )
            largest = max(apart, key=lambda each: each.reach)
            nodes = max(
                (each.nodes for each in apart if each.nodes is not None), key=lambda nodes: nodes.n_node, default=None
            )
            psf = dataclasses.replace(largest, nodes=nodes, lost=np.asarray(max(float(each.lost) for each in apart)))
            apart = [PSF.build(place, *planned, like=psf) for place in every]
            image = np.stack([np.asarray(each.image) for each in apart])
            sharpening = np.array([float(each.sharpening) for each in apart])
            psf = dataclasses.replace(psf, image=apart[0].image, sharpening=apart[0].sharpening)
        return cls(psf, rows, columns, *_ratios(settings), image=image, sharpening=sharpening)

    @property
    def n_place(self) -> int:
        """Number of PSFs."""
        return len(self.x) * len(self.y)

    def at_place(self, parameters: PSFParameters, width: Array, beta: Array) -> PSFParameters:
        """The parameters of the PSF at a place."""
        fwhm, exponent = parameters.fwhm, parameters.beta
        if fwhm is not None:
            fwhm = jnp.asarray(fwhm) * width.astype(jnp.asarray(fwhm).dtype)
        if exponent is not None:
            exponent = 1.0 + (jnp.asarray(exponent) - 1.0) * beta.astype(jnp.asarray(exponent).dtype)
        return dataclasses.replace(parameters, fwhm=fwhm, beta=exponent)

    def at_each(self, parameters: PSFParameters, of_one: Callable[[PSFParameters], Any]) -> Any:
        """The values of a function of the parameters at each place, first axis."""
        scales = jnp.asarray(self.width), jnp.asarray(self.beta)
        return lax.map(lambda scale: of_one(self.at_place(parameters, *scale)), scales)

    def images(self, parameters: PSFParameters) -> Float[Array, "place node side side"]:
        """Images of each place at the nodes (or the one for all wavelengths)."""
        if self.image is None:
            return self.at_each(parameters, self.psf.images)

        def of_place(place: tuple[Array, Array]) -> Float[Array, "node side side"]:
            images, variance = place
            return jax.vmap(lambda image: of_file(image, variance, self.psf.painting))(images)

        return lax.map(of_place, (jnp.asarray(self.image), jnp.asarray(self.sharpening)))

    def node_images(self, parameters: PSFParameters) -> Float[Array, "node tall side"]:
        """The images of all places, one below the other, at the nodes."""
        images = jnp.moveaxis(self.images(parameters), 0, 1)
        return images.reshape(images.shape[0], -1, images.shape[3])

    def images_at(
        self, parameters: PSFParameters, wavelength: Float[Array | ndarray, ""]
    ) -> Float[Array, "place side side"]:
        """The images at one wavelength (Angstrom in the detector's medium)."""
        images = self.images(parameters)
        if self.psf.nodes is None:
            return images[:, 0]
        share = self.psf.nodes.shares(jnp.asarray(wavelength)[None])[0]
        return jnp.einsum("n,pnyx->pyx", share.astype(images.dtype), images)

    def weights(self, footprint: Footprint) -> tuple[Float[Array, "place y"], Float[Array, "place x"]]:
        """The weights of each place along the rows and along the columns of a footprint: products of both."""
        along_x, along_y = footprint.centres(jnp)
        rows, columns = (
            node_shares(at, jnp.asarray(nodes, at.dtype)).T for at, nodes in ((along_y, self.y), (along_x, self.x))
        )
        return jnp.repeat(rows, len(self.x), axis=0), jnp.tile(columns, (len(self.y), 1))

    def blurred(
        self,
        images: Float[Array, "y x k"],
        kernels: Any,
        blur_one: Callable[[Float[Array, "y x k"], Any], Float[Array, "inner_y inner_x k"]],
    ) -> Float[Array, "inner_y inner_x k"]:
        """The sum over places of `blur_one` of the weighted images; `kernels` have the places as first axis."""
        cell = self.psf.pixel_scale / self.psf.painting.cells
        rows, columns = self.weights(Footprint(images.shape[0], images.shape[1], jnp.asarray(cell, images.dtype)))

        @jax.checkpoint
        def part(kernel: Any, row: Float[Array, " y"], column: Float[Array, " x"]) -> Float[Array, "inner_y inner_x k"]:
            return blur_one(images * (row[:, None] * column[None, :])[:, :, None], kernel)

        places = kernels, rows, columns
        shape = jax.eval_shape(lambda: part(*jax.tree.map(lambda leaf: leaf[0], places)))
        start = varying(jnp.zeros(shape.shape, shape.dtype), images, kernels)
        return lax.scan(lambda total, place: (total + part(*place), None), start, places)[0]


def _ratios(settings: PSFSettings) -> tuple[Float[ndarray, "place *table"], Float[ndarray, "place *table"]]:
    """FWHM, and beta - 1, of every place relative to those of the settings."""
    places = sorted(settings.field or (), key=lambda place: place.at[::-1])
    shape = () if settings.wavelength is None else (len(settings.wavelength),)

    def along(values: list[Any]) -> Float[ndarray, "place *table"]:
        return np.stack([np.broadcast_to(np.asarray(value, np.float64), shape) for value in values])

    width = along([1.0 if place.width is None else place.width for place in places])
    if settings.beta is None:
        return width, np.ones_like(width)
    base = along([settings.beta])
    beta = along([settings.beta if place.beta is None else place.beta for place in places])
    return width, (beta - 1.0) / (base - 1.0)


_LEFT_OUT = 1e-5
"""Largest error of the sum, relative to the PSF's peak, at the planned widths; ten times as much for changed ones."""

_LARGEST_REACH = 24
"""Spaxels on each side that terms are chosen by."""

_LIGHTER = 0.1
"""Weight of the images' changes, beside the images, where terms are put in order."""

_NAMES = ("mix", "weights", "size", "error")


class PSFTerms(eqx.Module):
    """PSF(x, y; lambda) = A_0(x, y) + sum over k > 0 of w_k(lambda) A_k(x, y), with |w_k| at most 1 at the nodes.

    A_k = sum over nodes n of `mix`[k, n] P_n, where P_n is the PSF's image at node n (`PSF.images`): A_0 is their mean,
    the others have the sum 0, so that the light is kept exactly. Only the images depend on the PSF's parameters; `mix`
    and w_k are planned, by a singular value decomposition of the images at the configured widths and of their changes
    with each width.

    | field | shape | |
    |---|---|---|
    | mix | (term, node) | of the images |
    | weights | (term, node) | w_k at the nodes; `PSF.nodes` interpolates them |
    | size | (term,) | largest value of w_k A_k, relative to the PSF's peak, also for changed widths |
    | error | scalar | largest difference from the PSF at the configured widths, relative to its peak |
    """

    mix: Float[Array | ndarray, "term node"]
    weights: Float[Array | ndarray, "term node"]
    size: Float[Array | ndarray, " term"]
    error: Float[Array | ndarray, ""]

    @property
    def n_term(self) -> int:
        """Number of terms."""
        return len(self.mix)

    def shares(self, shares: Float[Array, "wave node"]) -> Float[Array, "wave term"]:
        """The terms' w at some wavelengths, from the shares of the nodes there."""
        return shares @ jnp.asarray(self.weights, shares.dtype).T

    def images(self, images: Float[Array, "node side side"]) -> Float[Array, "term side side"]:
        """The terms' images from those at the nodes."""
        return jnp.einsum("kn,nyx->kyx", jnp.asarray(self.mix, images.dtype), images)


def find_terms(psf: PSF | FieldPSF, parameters: PSFParameters) -> PSFTerms:
    """The fewest terms of a PSF with these widths, which follow wavelength, that suffice, at every place of the field.

    Host only; from the disk cache where they were worked out before. Raises ValueError for a PSF that is the same at
    all wavelengths.
    """
    one = psf.psf if isinstance(psf, FieldPSF) else psf
    if one.nodes is None:
        raise ValueError("psf: expected one that follows wavelength, got one for all")
    parts = [np.asarray(leaf) for leaf in jax.tree.leaves((psf, parameters))]
    key = key_of(one.kind, one.reach, one.nodes.degree, tuple(one.painting), *parts)
    found = remembered("psf", key, _NAMES, lambda: _found(psf, parameters))
    return PSFTerms(**{name: np.asarray(found[name]) for name in _NAMES})


def _found(psf: PSF | FieldPSF, parameters: PSFParameters) -> dict[str, ndarray]:
    samples = _samples(psf, parameters)
    apart = samples.reshape(*samples.shape[:2], psf.n_place, -1)
    peaks = apart[0].max(axis=(0, 2))
    flat = (apart / peaks[:, None]).reshape(*samples.shape[:2], -1)
    n_node = flat.shape[1]
    differences = np.concatenate([flat[:1], _LIGHTER * (flat[1:] - flat[:1])])
    differences -= differences.mean(axis=1, keepdims=True)
    stacked = np.moveaxis(differences, 1, 0).reshape(n_node, -1)
    vectors = np.linalg.eigh(stacked @ stacked.T)[1][:, :0:-1]  # without the constant
    vectors = np.linalg.qr(vectors - vectors.mean(axis=0))[0].T
    errors = np.array([_errors(flat, vectors[:number]) for number in range(n_node)])
    enough = (errors[:, 0] <= _LEFT_OUT) & (errors.max(axis=1) <= 10 * _LEFT_OUT)
    number = int(np.argmax(enough)) if enough.any() else n_node - 1
    kept = vectors[:number]
    largest = np.abs(kept).max(axis=1, initial=0.0)
    size = largest * np.abs(np.einsum("kn,snp->ksp", kept, flat)).max(axis=(1, 2), initial=0.0)
    constant = np.ones((1, n_node))
    return {
        "mix": np.concatenate([constant / n_node, kept * largest[:, None]]),
        "weights": np.concatenate([constant, kept / largest[:, None]]),
        "size": np.concatenate([[1.0], size]),
        "error": errors[number, 0],
    }


def _errors(
    images: Float[ndarray, "sample node pixel"], kept: Float[ndarray, "term node"]
) -> Float[ndarray, " sample"]:
    """The largest difference of each sample's images from the sum of their mean and these terms."""
    n_node = images.shape[1]
    left = np.eye(n_node) - 1 / n_node - kept.T @ kept
    return np.abs(np.einsum("nm,smp->snp", left, images, optimize=True)).max(axis=(1, 2))


def _samples(psf: PSF | FieldPSF, parameters: PSFParameters) -> Float[ndarray, "sample node tall side"]:
    """Images at the nodes: with the configured widths, then with each number of the parameters made smaller."""
    one = psf.psf if isinstance(psf, FieldPSF) else psf
    smaller = one if one.image is not None else dataclasses.replace(one, reach=min(one.reach, _LARGEST_REACH))
    smaller = dataclasses.replace(psf, psf=smaller) if isinstance(psf, FieldPSF) else smaller
    numbers = {name: np.asarray(value, np.float64) for name, value in vars(parameters).items() if value is not None}
    with jax.enable_x64(True):
        if not numbers:
            return np.asarray(_images(smaller, parameters))[None]
        changes = float(one.change) * np.eye(sum(value.size for value in numbers.values()))
        factors = 1.0 - np.concatenate([np.zeros((1, len(changes))), changes])
        cuts = np.cumsum([value.size for value in numbers.values()])[:-1]
        changed = {}
        for (name, value), factor in zip(numbers.items(), np.split(factors, cuts, axis=1), strict=True):
            least = 1.0 if name == "beta" else 0.0
            changed[name] = least + (value - least) * factor.reshape(-1, *value.shape)
        return np.asarray(_images_of_all(smaller, changed))


@jax.jit
def _images(psf: PSF | FieldPSF, parameters: PSFParameters) -> Float[Array, "node tall side"]:
    return psf.node_images(parameters)


@jax.jit
def _images_of_all(psf: PSF | FieldPSF, parameters: dict[str, Any]) -> Float[Array, "sample node tall side"]:
    return lax.map(lambda changed: psf.node_images(PSFParameters(**changed)), parameters)
