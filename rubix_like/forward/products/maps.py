"""The maps of a run: what its products make of images of their sums, before and after the PSF."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import Image, Maps, MapSet, ProductAxes
from rubix_like.cube.meta import Counters, Meta
from rubix_like.forward.products.product import AbstractProduct, ParticleMaps, ProductImages, Summed
from rubix_like.galaxy.limits import POSSIBLE
from rubix_like.runtime.mesh.mesh import own_copy

_FAINTEST = 1e-6
"""After the PSF a spaxel with less than this share of the brightest one's light (mass) has no mean."""


def make_maps(
    images: ProductImages,
    products: Sequence[AbstractProduct],
    axes: ProductAxes,
    mask: Int[np.ndarray, "y x"],
    counters: Counters | None,
    *,
    footprint: Footprint,
    meta: Meta,
) -> Maps:
    """The maps, before and after the PSF, of all products; differentiable."""
    sums = images.split(images.before)
    before, attenuation = _map_set(images, sums, products, axes, 0.0)
    after, _ = _map_set(images, images.split(images.after), products, axes, _FAINTEST)
    for product, columns in zip(products, sums, strict=True):
        if product.labels and isinstance(product, ParticleMaps):
            _check_columns(product.who, columns)
    _check_sums("stars", before.birth_mass)
    _check_sums("gas", before.gas_mass)
    return Maps(
        before=before,
        after=after,
        mask=mask,
        velocity=axes.velocity,
        counters=counters,
        filters=axes.filters,
        band=axes.band,
        fit_particles=axes.fit_particles,
        footprint=footprint,
        meta=meta,
        fields=axes.fields,
        lines=() if axes.lines is None else axes.lines.lines,
        attenuation=attenuation,
    )


def _check_sums(kind: str, mass: Image | None) -> None:
    """Raise ValueError for sums over particles that cannot be; it does nothing while tracing."""
    if mass is not None and not _is_finite(mass):
        raise ValueError(
            f"galaxy.{kind}: expected {POSSIBLE}, got others in the maps of {kind}; rubix_like.validate(galaxy) names "
            f"them"
        )


def _check_columns(product: str, columns: Mapping[str, Image]) -> None:
    """Raise ValueError for sums that are NaN or inf; it does nothing while tracing."""
    for name, image in columns.items():
        if not _is_finite(image):
            raise ValueError(
                f"{product}: `columns`: expected finite numbers for all particles, got NaN or inf in '{name}'"
            )


def _is_finite(image: Image) -> bool:
    """Whether all numbers of an image are finite, so far as they are known: true while tracing."""
    return isinstance(image, Tracer) or bool(np.isfinite(own_copy(image)).all())


def _map_set(
    images: ProductImages,
    sums: Sequence[Mapping[str, Float[Array, "*_"]]],
    products: Sequence[AbstractProduct],
    axes: ProductAxes,
    faintest: float,
) -> tuple[MapSet, Any]:
    """The maps of all products, and the attenuation curve of the one that makes it."""
    made: dict[str, Any] = {}
    fields: dict[str, Image] = {}
    for product, columns, other in zip(products, sums, images.other, strict=True):
        maps = product.make(Summed(columns, other, images.reference, faintest, axes))
        if product.labels:
            fields |= maps
        else:
            made |= maps
    attenuation = made.pop("attenuation", None)
    return MapSet(**made, fields=fields), attenuation
