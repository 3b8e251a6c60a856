"""Tables of the values of a fit or a sampling as papers have them: astropy's, with units, and LaTeX."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rubix_like.inference.checks.edges import Reach
from rubix_like.inference.posterior.free import FreeParameter, shown
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.runtime.places import found_at

_LARGE, _SMALL = 5, -4
"""Powers of ten from which on, and below which, numbers are written with an exponent."""


@dataclass(frozen=True)
class TableRow:
    """One number: its label, value (the best, or the mean), standard deviation (NaN without one), 16 and 84 %, the
    limit where it is one, its parameter, whether its uncertainty is too small."""

    label: str
    value: float
    sigma: float
    low: float
    high: float
    reach: Reach | None
    parameter: FreeParameter
    doubtful: bool

    @property
    def text(self) -> str:
        """The value with its error, as many digits as the error has a meaning for; a limit; or the value alone."""
        if self.reach is not None:
            return self.reach.words()
        return plus_minus(self.value, self.sigma)


def rows_of(result: FitResult | SampleResult) -> Iterator[TableRow]:
    """A row for each number, in the order of the labels."""
    (low, high), limits = result.interval(), result.limits()
    centre = result.values if isinstance(result, FitResult) else result.mean
    doubtful = dict(zip(result.labels, result.verdict.doubtful, strict=True))
    for own in result.free.parameters:
        columns = [np.ravel(of[own.name]) for of in (centre, result.sigma, low, high)]
        for label, value, sigma, lower, upper in zip(own.labels, *columns, strict=True):
            numbers = (float(value), float(sigma), float(lower), float(upper))
            yield TableRow(label, *numbers, limits.get(label), own, bool(doubtful[label]))


def rounded(value: float, sigma: float) -> tuple[str, str, int]:
    """A value and its standard deviation with two digits of the latter, and the power of ten that both are in."""
    power = int(np.floor(np.log10(max(abs(value), sigma))))
    power = power if power >= _LARGE or power < _SMALL else 0
    value, sigma = value / 10.0**power, sigma / 10.0**power
    decimals = max(1 - int(np.floor(np.log10(float(f"{sigma:.1e}")))), 0)
    return f"{value:.{decimals}f}", f"{sigma:.{decimals}f}", power


def plus_minus(value: float, sigma: float, sign: str = "+-") -> str:
    """`54.21 +- 0.43`, or `(1.052 +- 0.012)e10`; the value alone without a standard deviation."""
    if not (np.isfinite(sigma) and sigma > 0):
        return f"{value:.6g}"
    number, error, power = rounded(value, sigma)
    both = f"{number} {sign} {error}"
    return f"({both})e{power}" if power else both


def value_table(result: FitResult | SampleResult) -> Any:
    """An `astropy.table.QTable` with a row for each number, in the unit that the column `unit` names.

    Columns: parameter, value, sigma (NaN at the edge of a prior), low and high (16 and 84 %), limit ("<", ">", or
    empty), unit, prior, doubtful (its uncertainty is too small).
    """
    table = found_at("astropy.table:QTable")
    rows = list(rows_of(result))
    columns: dict[str, Any] = {"parameter": [row.label for row in rows]}
    for name in ("value", "sigma", "low", "high"):
        columns[name] = np.array([getattr(row, name) for row in rows])
    columns["limit"] = ["" if row.reach is None else row.reach.sign for row in rows]
    columns["unit"] = [row.parameter.unit for row in rows]
    columns["prior"] = [shown(row.parameter.prior) for row in rows]
    columns["doubtful"] = [row.doubtful for row in rows]
    return table(columns, meta={"verdict": result.verdict.sentence})


def quantities(result: FitResult | SampleResult) -> Any:
    """An `astropy.table.QTable` of one row: a column for each number with its unit, and `NAME_sigma` beside it."""
    table, quantity = found_at("astropy.table:QTable"), found_at("astropy.units:Quantity")
    read_unit = found_at("astropy.units:Unit")
    columns = {}
    for row in rows_of(result):
        unit = read_unit(row.parameter.unit.replace("Msun", "solMass"))
        columns[row.label] = quantity([row.value], unit)
        columns[f"{row.label}_sigma"] = quantity([row.sigma], unit)
    return table(columns, meta={"verdict": result.verdict.sentence})


def latex_table(result: FitResult | SampleResult) -> str:
    """A LaTeX `tabular` with parameter, value with its error, unit and prior."""
    lines = [r"\begin{tabular}{llll}", r"\hline", r"Parameter & Value & Unit & Prior \\", r"\hline"]
    for row in rows_of(result):
        cells = (_words(row.label), _in_math(row), _words(row.parameter.unit), _words(shown(row.parameter.prior)))
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def _in_math(row: TableRow) -> str:
    if row.reach is not None:
        words = row.reach.words().replace("%", r"\%")
        return re.sub(r"^([<>]) (\S+)", r"$\1 \2$", words)
    text = plus_minus(row.value, row.sigma, r"\pm")
    text = re.sub(r"e([+-]?)0*(\d+)$", lambda found: rf" \times 10^{{{found[1].strip('+')}{found[2]}}}", text)
    return f"${text}$"


def _words(text: str) -> str:
    """Text without letters that LaTeX takes for commands."""
    return re.sub(r"([_%&#$])", r"\\\1", text.replace("{", r"\{").replace("}", r"\}"))
