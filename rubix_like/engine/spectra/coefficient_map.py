"""The linear map from coefficients per spaxel to the detector's bins."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.engine.spaxels import Images
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.device_layout import DeviceLayout

Projection = Callable[[Float[Array, "spaxel coefficient"]], Float[Array, "spaxel bin"]]
"""Function from the coefficients of some spaxels to their flux density in bins (1e-20 erg/s/cm2/Angstrom)."""


class AbstractCoefficientMap(eqx.Module):
    """The linear map from coefficients, (velocity node, basis spectrum) flattened to one axis, to the detector's bins.

    Inside the model each device's map holds only the bins of its part of the layout.
    """

    @property
    @abstractmethod
    def n_coefficient(self) -> int:
        """Columns that are kept for each spaxel: velocity nodes times basis spectra, or fewer."""

    @property
    @abstractmethod
    def n_wave(self) -> int:
        """Bins that it holds."""

    @abstractmethod
    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """What is kept of painted coefficients: the columns that `spectra` projects, `n_coefficient` of them."""

    @abstractmethod
    def spectra(self) -> Projection:
        """The function that projects coefficients onto the bins; its tables are computed once, in this call."""

    @abstractmethod
    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """Each coefficient's flux on the whole detector (1e-20 erg/s/cm2), and that flux times v_los (km/s)."""

    @abstractmethod
    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """The spectra of the spaxels that are seen, in the bins that it holds.

        Where `spatial` depends on wavelength, it acts on what is kept if `by_terms`, else on each bin's image.
        """

    @abstractmethod
    def of_own_bins(self, layout: DeviceLayout) -> "AbstractCoefficientMap":
        """The map to the bins that this device finishes."""

    @abstractmethod
    def padded(self, n_padded: int) -> "AbstractCoefficientMap":
        """The map with bins appended up to `n_padded` (on the host)."""


def projected(
    projection: Projection, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
) -> Float[Array, "seen own_bin"]:
    """`AbstractCoefficientMap.seen` by a projection of what is kept."""
    if spatial.by_wavelength is None or by_terms:
        return spatial.projected(kept, projection)
    return spatial.of_bins(projection(kept))


class MatrixMap(AbstractCoefficientMap):
    """One product with a matrix; `moment_matrix` takes the coefficients to their moments."""

    matrix: Float[Array | ndarray, "coefficient wave"] = eqx.field(metadata=per_bin(1, pad="zero"))
    moment_matrix: Float[Array | ndarray, "coefficient 2"]

    @property
    def n_coefficient(self) -> int:
        """Rows of the matrix."""
        return self.matrix.shape[0]

    @property
    def n_wave(self) -> int:
        """Columns of the matrix."""
        return self.matrix.shape[1]

    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """All of them."""
        return coefficients

    def spectra(self) -> Projection:
        """The product."""
        return lambda coefficients: jnp.matmul(coefficients, self.matrix, precision=lax.Precision.HIGHEST)

    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """`moment_matrix`."""
        return self.moment_matrix

    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """The product, after or before the spaxels are seen."""
        return projected(self.spectra(), kept, spatial, by_terms=by_terms)

    def of_own_bins(self, layout: DeviceLayout) -> "MatrixMap":
        """The map with the columns of these bins only."""
        return dataclasses.replace(self, matrix=layout.own_bins(jnp.asarray(self.matrix)))

    def beside(self, rows: Float[Array, "few wave"]) -> "MatrixMap":
        """The map of more coefficients, after its own, that stand for these rows and have no moments."""
        moments = jnp.asarray(self.moment_matrix)
        none = jnp.zeros((len(rows), 2), moments.dtype)
        return MatrixMap(jnp.concatenate([jnp.asarray(self.matrix), rows]), jnp.concatenate([moments, none]))

    def padded(self, n_padded: int) -> "MatrixMap":
        """The map with columns of 0 appended."""
        missing = ((0, 0), (0, n_padded - self.n_wave))
        return dataclasses.replace(self, matrix=np.pad(np.asarray(self.matrix), missing))
