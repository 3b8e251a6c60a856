"""What is known, before any particle is painted, of the error of method `basis`."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

Number = Float[Array | ndarray, ""]


class Accuracy(eqx.Module):
    """Errors relative to a spectrum's mean over the detector (scalar arrays).

    `residual`: largest rms error of any template on the spectral basis; `velocity_error`: largest rms error midway
    between two velocity nodes; `local_error`: largest error of any template in any one bin; `flux_error`: largest error
    of any template's flux over the whole detector.
    """

    residual: Number
    velocity_error: Number
    local_error: Number
    flux_error: Number

    @property
    def spectrum_error(self) -> float:
        """Largest rms error of any spectrum: both errors together, which are independent."""
        return float(np.hypot(self.residual, self.velocity_error))
