"""The attenuation curve of a galaxy: how much more, or less, dust dims its light at each wavelength than in V."""

from typing import TYPE_CHECKING

import numpy as np

from rubix_like.cube.maps import AttenuationCurve
from rubix_like.plots.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ATTENUATION_SIZE: tuple[float, float] = (5.6, 4.0)
"""Width and height of the picture in inches."""


def draw_attenuation(axes: "Axes", curve: AttenuationCurve) -> None:
    """A / A(V) of all stars in the field by wavelength at rest; A in mag where nothing dims V, or it is not covered."""
    relative, a_v = np.asarray(curve.relative, np.float64), float(curve.a_v)
    has_v = bool(np.isfinite(relative).any())
    values = relative if has_v else np.asarray(curve.a_lambda, np.float64)
    axes.plot(np.asarray(curve.wavelength), values, color=INK, linewidth=1.2)
    axes.set(xscale="log", xlabel="wavelength at rest, vacuum (Å)", ylabel="A / A(5500 Å)" if has_v else "A (mag)")
    if has_v:
        axes.text(0.97, 0.94, f"A(5500 Å) = {a_v:.3g} mag", ha="right", va="top", color=INK, transform=axes.transAxes)
