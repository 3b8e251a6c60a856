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

from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.device_layout import DeviceLayout

Spectra = Callable[[Float[Array, "spaxel coefficient"]], Float[Array, "spaxel bin"]]
"""Function from the coefficients of some spaxels to their flux density in bins."""


class AbstractCoefficientMap(eqx.Module):
    """What coefficients, (velocity node, basis spectrum) in one axis, look like through the detector.

    Inside the model it holds the bins of its own device's part of the layout.
    """

    @property
    @abstractmethod
    def n_coefficient(self) -> int:
        """Velocity nodes times basis spectra."""

    @property
    @abstractmethod
    def n_wave(self) -> int:
        """Bins that it holds."""

    @abstractmethod
    def spectra(self) -> Spectra:
        """The map to flux density (1e-20 erg/s/cm2/Angstrom); what it takes beside coefficients is made once."""

    @abstractmethod
    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """Of each coefficient its light on the whole detector (1e-20 erg/s/cm2), and that times v_los (km/s)."""

    @abstractmethod
    def of_own_bins(self, layout: DeviceLayout) -> "AbstractCoefficientMap":
        """The map to the bins that are finished here."""

    @abstractmethod
    def padded(self, n_padded: int) -> "AbstractCoefficientMap":
        """The map with bins appended to so many in all (on the host)."""


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

    def spectra(self) -> Spectra:
        """The product."""
        return lambda coefficients: jnp.matmul(coefficients, self.matrix, precision=lax.Precision.HIGHEST)

    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """`moment_matrix`."""
        return self.moment_matrix

    def of_own_bins(self, layout: DeviceLayout) -> "MatrixMap":
        """With the columns of these bins."""
        return dataclasses.replace(self, matrix=layout.own_bins(jnp.asarray(self.matrix)))

    def padded(self, n_padded: int) -> "MatrixMap":
        """With columns of 0."""
        missing = ((0, 0), (0, n_padded - self.n_wave))
        return dataclasses.replace(self, matrix=np.pad(np.asarray(self.matrix), missing))
