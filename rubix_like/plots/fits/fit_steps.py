"""The steps of every start of a fit: loss above the best one, and norm of the gradient."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rubix_like.plots.fits.fit_view import Trace
from rubix_like.plots.style import SPAXEL_COLORS, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLOOR: float = 1e-4
"""Distance from the best loss at which the logarithmic axis ends."""


def draw_traces(figure: "Figure", traces: Sequence[Trace]) -> None:
    """Loss minus the lowest loss of all starts, and gradient norm, against steps; a cross ends a start that failed."""
    upper, lower = np.atleast_1d(figure.subplots(2, 1, sharex=True))
    finite = [float(np.nanmin(trace.loss)) for trace in traces if np.isfinite(trace.loss).any()]
    lowest = min(finite, default=0.0)
    for number, trace in enumerate(traces):
        color = SPAXEL_COLORS[number % len(SPAXEL_COLORS)]
        above = np.maximum(trace.loss - lowest, FLOOR)
        label = f"start {number + 1}" + ("" if trace.converged else " (not converged)")
        for axes, values in ((upper, above), (lower, trace.gradient_norm)):
            axes.plot(np.arange(len(values)), values, color=color, linewidth=1.1, label=label)
            if len(values):
                mark = "o" if trace.converged else "x"
                axes.plot(len(values) - 1, values[-1], mark, color=color, markersize=5)
    upper.set_ylabel(f"loss − {lowest:.6g}")
    upper.set_title(f"loss = χ²/2 + prior, above the lowest, {lowest:.6g} (drawn from {FLOOR:g})")
    lower.set_ylabel("norm of the gradient")
    lower.set_xlabel("step")
    for axes in (upper, lower):
        _finish(axes)
    if len(traces) <= len(SPAXEL_COLORS):
        upper.legend(frameon=False, loc="upper right")


def _finish(axes: "Axes") -> None:
    style: Any = {"color": "#dddddd", "linewidth": 0.5}
    axes.set_yscale("log")
    axes.grid(**style)
    axes.xaxis.set_major_locator(import_matplotlib("matplotlib.ticker").MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
