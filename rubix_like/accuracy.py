"""What is known, before any particle is painted, of the error of method `basis`."""

import equinox as eqx
from jaxtyping import Array, Float
from numpy import ndarray

Number = Float[Array | ndarray, ""]


class Accuracy(eqx.Module):
    """Errors relative to a spectrum's mean over the detector (scalar arrays); all bins that are not flagged count.

    `spectrum_error`: an upper bound of the rms error of any template at any velocity that the nodes reach, and so of
    any sum of templates; `velocity_error`: the same of what lies between the velocity nodes, were the basis exact;
    `residual`: largest rms error of any template on the spectral basis; `local_error`: largest error of any template
    on it in any one bin; `flux_error`: largest error of any template's flux over the whole detector; `lowest`: lowest
    flux of any template in any bin, 0 where none is negative.
    """

    spectrum_error: Number
    velocity_error: Number
    residual: Number
    local_error: Number
    flux_error: Number
    lowest: Number
