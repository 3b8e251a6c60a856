"""What is known, before any particle is painted, of the error of method `basis`."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

Number = Float[Array | ndarray, ""]


class Accuracy(eqx.Module):
    """Errors relative to a spectrum's mean over the detector (scalar arrays).

    `residual`: largest rms error of any template on the spectral basis; `velocity_error`: largest rms error midway
    between two velocity nodes (of the templates with the most structure); `local_error`: largest error of any template
    on the spectral basis in any one bin; `flux_error`: largest error of any template's flux over the whole detector;
    `lowest`: lowest flux of any template in any bin, 0 where none is negative.
    """

    residual: Number
    velocity_error: Number
    local_error: Number
    flux_error: Number
    lowest: Number

    @property
    def spectrum_error(self) -> float:
        """Largest rms error of any spectrum: both errors together, which are independent."""
        return float(np.hypot(self.residual, self.velocity_error))
