"""A few basis line ratios that stand for all templates of a table of lines, each line to a share of its own flux."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.engine.spectra.attenuation import FactoredDust, factored_lines
from rubix_like.physics.templates import LineTemplates, layers_of

FAINT_LINE: float = 1e-2
"""Relative to Hb, or to the brightest line without it: the error of fainter lines is relative to this brightness."""

_BALMER = "Hb"


class LineRatios(NamedTuple):
    """table[k, l] = sum_r coefficients[k, r] loading[r, l], within `error` of the larger of each entry and `FAINT_LINE`
    times its template's reference."""

    coefficients: Float[ndarray, "template rank"]
    loading: Float[ndarray, "rank line"]
    error: float


def reference_light(table: Float[ndarray, "template line"], lines: tuple[str, ...]) -> Float[ndarray, " template"]:
    """What a template's faint lines are compared with (unit of `table`): Hb, or without it the brightest line."""
    brightest = table.max(axis=1, initial=0.0)
    if _BALMER not in lines:
        return brightest
    balmer = table[:, lines.index(_BALMER)]
    return np.where(balmer > 0, balmer, brightest)


def find_ratios(
    table: Float[ndarray, "template line"], reference: Float[ndarray, " template"], tolerance: float
) -> LineRatios:
    """The fewest basis line ratios within the tolerance, at most as many as there are templates or lines (exact).

    Each template is divided by its reference, and each line by a level (the root of its harmonic mean square) that
    gives weight to templates in which it is faint. Singular values of that table are added until each line of each
    template is within the tolerance.
    """
    n_template, n_line = table.shape
    most = min(n_template, n_line)
    exact = LineRatios(*((table, np.eye(n_line)) if n_line == most else (np.eye(n_template), table)), 0.0)
    lit = reference > 0
    if most == 1 or not lit.any():
        return exact
    scale = np.where(lit, reference, 1.0)
    shape = table / scale[:, None]
    floor = np.maximum(shape, FAINT_LINE)
    level = 1.0 / np.sqrt((1.0 / floor[lit] ** 2).mean(axis=0))
    left, values, right = np.linalg.svd(shape / level, full_matrices=False)
    for rank in range(1, most):
        coefficients, loading = left[:, :rank] * values[:rank], right[:rank] * level
        error = float((np.abs(coefficients @ loading - shape) / floor)[lit].max())
        if error <= tolerance:
            return LineRatios(scale[:, None] * coefficients, loading, error)
    return exact


def factored_dust_of(
    templates: LineTemplates, wavelength: Float[ndarray, " line"], tolerance: float
) -> FactoredDust | None:
    """The dust in front of lines at these wavelengths (vacuum Angstrom) as a few functions of A(V); None without."""
    layers = layers_of(templates)
    if layers is None:
        return None
    return factored_lines(layers(wavelength), float(np.asarray(templates.axes.largest_a_v)), tolerance)
