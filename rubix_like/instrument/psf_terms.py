"""A PSF that follows wavelength as a short sum of fixed images times smooth functions of wavelength."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.runtime.arrays_on_disk import key_of, remembered

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
    one = np.ones((1, n_node))
    return {
        "mix": np.concatenate([one / n_node, kept * largest[:, None]]),
        "weights": np.concatenate([one, kept / largest[:, None]]),
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
        for (name, value), own in zip(numbers.items(), np.split(factors, cuts, axis=1), strict=True):
            least = 1.0 if name == "beta" else 0.0
            changed[name] = least + (value - least) * own.reshape(-1, *value.shape)
        return np.asarray(_images_of_all(smaller, changed))


@jax.jit
def _images(psf: PSF | FieldPSF, parameters: PSFParameters) -> Float[Array, "node tall side"]:
    return psf.node_images(parameters)


@jax.jit
def _images_of_all(psf: PSF | FieldPSF, parameters: dict[str, Any]) -> Float[Array, "sample node tall side"]:
    return lax.map(lambda own: psf.node_images(PSFParameters(**own)), parameters)
