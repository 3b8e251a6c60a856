"""How painted columns become those of the spaxels that are seen: through the PSF, which may follow wavelength."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rubix_like.engine.spaxels import SpaxelGrid

_SPAXELS_AT_ONCE = 256

Seen = Callable[[Float[Array, "y x k"]], Float[Array, "seen k"]]
"""Linear function from images of all layers together to columns over the spaxels that are seen."""


class SeenByWavelength(NamedTuple):
    """What is seen where that depends on wavelength: w_0(lambda) A_0 + w_1(lambda) A_1 + ... with linear maps A.

    `terms` takes images in groups of the sizes given, one group for each term, each through the term's own map;
    `shares` holds the w of the bins that the device finishes; `bins` takes one image for each of these bins and is
    exact, where the sum of terms has the error of `instrument.psf_terms`.
    """

    terms: Callable[[Float[Array, "y x k"], tuple[int, ...]], Float[Array, "seen k"]]
    shares: Float[Array, "own term"]
    bins: Seen


class Images(NamedTuple):
    """Linear functions from columns over the painted `grid`, (spaxel, k), to columns over the spaxels that are seen.

    `seen` does the rest for what is of no one wavelength, once the columns are images, and for all else, too, where
    `by_wavelength` is None.
    """

    grid: SpaxelGrid
    seen: Seen
    by_wavelength: SeenByWavelength | None = None

    def __call__(self, columns: Float[Array, "spaxel k"]) -> Float[Array, "seen k"]:
        """The columns of the spaxels that are seen, by the same function for all of them."""
        return self.seen(self.grid.images(columns))

    def of_bins(self, columns: Float[Array, "spaxel own"]) -> Float[Array, "seen own"]:
        """The same for columns that are the bins of the device."""
        return self(columns) if self.by_wavelength is None else self.by_wavelength.bins(self.grid.images(columns))

    def projected(
        self, columns: Float[Array, "spaxel k"], projection: Callable[[Array], Array]
    ) -> Float[Array, "seen own"]:
        """The bins of the device, which `projection` makes of columns; it acts on those that are seen."""
        if self.by_wavelength is None:
            return projection(self(columns))
        terms, shares, _ = self.by_wavelength
        n_column, n_term = columns.shape[1], shares.shape[1]
        images = self.grid.images(columns)
        seen = terms(jnp.concatenate([images] * n_term, axis=2), (n_column,) * n_term)

        def of_one(own: Float[Array, " k"]) -> Float[Array, " own"]:
            return (shares.T * projection(own.reshape(n_term, n_column))).sum(axis=0)

        return lax.map(of_one, seen, batch_size=_SPAXELS_AT_ONCE)

    def after(self, grid: SpaxelGrid, first: Callable[[Array], Array]) -> "Images":
        """The same for what is painted on another grid, and goes through `first` before."""
        own = self.by_wavelength
        if own is not None:
            own = SeenByWavelength(
                lambda images, sizes, terms=own.terms: terms(first(images), sizes),
                own.shares,
                lambda images, bins=own.bins: bins(first(images)),
            )
        return Images(grid, lambda images: self.seen(first(images)), own)
