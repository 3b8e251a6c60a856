"""Tables of the values of fits and samplings, as text, HTML, LaTeX and astropy's, and how far they can be trusted."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rubix_like.config.yaml_files import parse_yaml
from rubix_like.inference.checks.notes import ELSEWHERE
from rubix_like.inference.checks.uncertainties import Reach
from rubix_like.inference.checks.verdict import Quality, Verdict, most_of_all
from rubix_like.inference.data_sets import FWHM
from rubix_like.inference.posterior.fit_model import OF_DATA, FreeParameter, shown
from rubix_like.inference.posterior.free_parameters import declarations_of
from rubix_like.inference.results.results import FitResult, SampleResult
from rubix_like.inference.samplers.samplers import describe_statistics, find_sampler
from rubix_like.runtime.notes import note_lines
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import counted, html_table, listed, percent, table_lines

_LARGE, _SMALL = 5, -4
"""Powers of ten from which on, and below which, numbers are written with an exponent."""


@dataclass(frozen=True)
class TableRow:
    """One number: its label, value (the best, or the mean), standard deviation (NaN without one), 16 and 84 %, the
    limit where it is one, its parameter, and its uncertainty with what a misfit adds."""

    label: str
    value: float
    sigma: float
    low: float
    high: float
    reach: Reach | None
    parameter: FreeParameter
    enlarged: float


def rows_of(result: FitResult | SampleResult) -> Iterator[TableRow]:
    """A row for each number, in the order of the labels."""
    (low, high), limits = result.interval(), result.limits()
    centre = result.values if isinstance(result, FitResult) else result.mean
    enlarged = result.enlarged_sigma
    for parameter in result.free.parameters:
        columns = [np.ravel(of[parameter.name]) for of in (centre, result.sigma, low, high, enlarged)]
        for label, value, sigma, lower, upper, larger in zip(parameter.labels, *columns, strict=True):
            numbers = (float(value), float(sigma), float(lower), float(upper))
            yield TableRow(label, *numbers, limits.get(label), parameter, float(larger))


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
    empty), unit, prior, doubtful (the model does not describe the data: sigma holds for it only), enlarged_sigma.
    """
    table = found_at("astropy.table:QTable")
    rows = list(rows_of(result))
    columns: dict[str, Any] = {"parameter": [row.label for row in rows]}
    for name in ("value", "sigma", "low", "high"):
        columns[name] = np.array([getattr(row, name) for row in rows])
    columns["limit"] = ["" if row.reach is None else row.reach.sign for row in rows]
    columns["unit"] = [row.parameter.unit for row in rows]
    columns["prior"] = [shown(row.parameter.prior) for row in rows]
    columns["doubtful"] = result.verdict.doubtful
    columns["enlarged_sigma"] = np.array([row.enlarged for row in rows])
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


MOST_ROWS: int = 40
"""Rows of the table; a fit of many particles has more numbers."""

_MARK = "enlarged error"
"""Head of the column that a misfit adds."""

_NUMBERS = {2: "two", 3: "three", 4: "four"}

_LEAST_DIGITS = 1e-9
"""Relative uncertainty that rounds a value without one."""


def summary_lines(result: FitResult | SampleResult) -> list[str]:
    """The text at the end of a fit or a sampling, one sentence a line."""
    if isinstance(result, SampleResult):
        first, rows, more = result.verdict.sentence, _sample_rows(result), _sample_quality_lines(result)
    else:
        first, rows = verdict_line(result), _fit_rows(result)
        more = [*optima_lines(result), *discreteness_lines(result), *_fit_quality_lines(result)]
    return [first, *aligned(rows), *legend(result.verdict), *more, *note_lines(result.notes)]


def summary_html(result: FitResult | SampleResult) -> str:
    """The summary for a notebook, its table as HTML."""
    if isinstance(result, SampleResult):
        first, rows, more = result.verdict.sentence, _sample_rows(result), _sample_quality_lines(result)
    else:
        first, rows, more = verdict_line(result), _fit_rows(result), _fit_quality_lines(result)
    notes = [first, *legend(result.verdict), *more, *note_lines(result.notes)]
    title = "Samples" if isinstance(result, SampleResult) else "Fit"
    return html_table(title, rows[: MOST_ROWS + 1], notes=[*_left_out(rows), *notes])


def verdict_line(result: FitResult) -> str:
    """The verdict, how many optima there are if several, and whether finite draws make most of the errors where the
    model describes the data."""
    grain, others = result.discreteness, result.other_optima
    optima = f"there are {_NUMBERS.get(len(others) + 1, len(others) + 1)} optima (below)" if others else ""
    more = "" if grain is None or result.verdict.misfit else grain.sentence
    line = "; but ".join(filter(None, (result.verdict.sentence, optima, more)))
    if result.inflation == 1:
        return line
    return f"{line}; sigma is inflated by {result.inflation:.3g}, the root of chi^2/dof (fit.inflate_sigma)"


def _fit_rows(result: FitResult) -> list[Sequence[str]]:
    """The head and a row for each number; with a misfit also the enlarged standard deviations."""
    rows: list[Sequence[str]] = [("parameter", "value", "16 %", "84 %", _MARK, "unit", "prior")]
    for row in rows_of(result):
        words = (row.parameter.unit or "-", shown(row.parameter.prior).strip("{}"))
        rows.append((row.label, *_cells(row), _enlarged(row.enlarged), *words))
    return rows if result.verdict.misfit else [(*row[:4], *row[5:]) for row in rows]


def _enlarged(sigma: float) -> str:
    """ "!" stands for an uncertainty that is not a standard deviation."""
    return f"{sigma:.2g}" if np.isfinite(sigma) and sigma > 0 else "!"


def legend(verdict: Verdict) -> list[str]:
    """The meaning of the enlarged errors, where there are any."""
    if not verdict.misfit:
        return []
    return [
        f"{_MARK}: the model does not describe the data; sqrt(s + m^2) times the error, s the largest chi^2 per degree "
        f"of freedom of the tests that fail, m the errors by which the value moves without a part of the data"
    ]


def optima_lines(result: FitResult) -> list[str]:
    """The values of other optima beside the best ones, in standard deviations from them."""
    lines = []
    sigmas, bests = (result.free.join(values) for values in (result.sigma, result.values))
    for other in result.other_optima:
        rows: list[Sequence[str]] = [("parameter", "best", "other", "in sigma", "", "unit")]
        for label, best, value, sigma, unit in zip(
            result.labels, bests, other.values, sigmas, _units_of(result), strict=True
        ):
            ratio = f"{(value - best) / sigma:+.1f}" if np.isfinite(sigma) and sigma > 0 else "-"
            rows.append((label, f"{best:.6g}", f"{value:.6g}", ratio, "", unit))
        lines += [f"Another optimum: {other.sentence}:", *aligned(rows)]
    return lines


def _units_of(result: FitResult) -> list[str]:
    return [parameter.unit or "-" for parameter in result.free.parameters for _ in parameter.labels]


def discreteness_lines(result: FitResult) -> list[str]:
    """Both parts of each sigma where the shift by finite draws was measured: sigma^2 = (of the data)^2 + shift^2."""
    grain = result.discreteness
    if grain is None:
        return []
    columns = (result.labels, grain.value_sigma, grain.values, grain.shift / grain.sigma, _units_of(result))
    rows: list[Sequence[str]] = [("parameter", "data's sigma", "shift", "in sigma", "", "unit")]
    for label, sigma, shift, ratio, unit in zip(*columns, strict=True):
        rows.append((label, f"{sigma:.2g}", f"{shift:+.2g}", f"{ratio:+.1f}", "", unit))
    return [
        f"Shift of the best values with {grain.n_compared} {grain.particles} in place of {grain.n_draws}:",
        *aligned(rows),
    ]


def _fit_quality_lines(result: FitResult) -> list[str]:
    """chi^2, and how the search ended."""
    starts = result.starts
    n_start, best = len(starts.loss), starts.best
    same = int(np.sum(starts.loss < starts.loss[best] + ELSEWHERE))
    return [
        chi_square_line(result.quality),
        *set_lines(result.verdict),
        f"Start {best + 1} of {n_start} is the best: {starts.reasons()[best]}; "
        f"{counted(int(starts.n_step[best]), 'step')}, {same} of {n_start} ended with that loss",
        *assumed_lines(result),
        *([] if result.evidence is None else [result.evidence.sentence]),
    ]


_FIRST_ASSUMED = ("a_v", "psf.fwhm", "dispersion", "bulge_fraction", "metallicity", "log_age")
"""Endings of the names of what is named first among what is assumed."""


def assumed_lines(result: FitResult | SampleResult) -> list[str]:
    """A line on what the model assumes, by the configuration: the SSP library, and parameters that were not free."""
    tree = parse_yaml(result.config, "the configuration of the result")
    settings = dict(_single_settings(tree, "")) if isinstance(tree, Mapping) else {}
    without_gas = ("galaxy.gas_", "galaxy.star_formation_rate") if settings.get("galaxy.n_gas") == 0 else ()
    free = {parameter.name for parameter in result.free.parameters}
    names = [
        name for name in declarations_of(settings) if name not in free and not name.startswith(("noise.", *without_gas))
    ]
    first = [name for ending in _FIRST_ASSUMED for name in names if name.endswith(ending)]
    library = settings.get("ssp.library")
    words = [f"SSP library {library}"] if library else []
    words += [*_assumed_of_sets(tree, free), *(f"{name} {settings[name]}" for name in dict.fromkeys([*first, *names]))]
    if not words:
        return []
    return [f"Assumed: {listed(words)}; chi^2 cannot reveal an error in these if the free values compensate for it"]


def _assumed_of_sets(tree: Any, free: Collection[str]) -> Iterator[str]:
    """Parameters of the instruments of several data sets that were not free, with the names of the sets."""
    data = (tree.get("fit") or {}).get("data") if isinstance(tree, Mapping) else None
    for name, section in data.items() if isinstance(data, Mapping) else ():
        settings = dict(_single_settings({"instrument": section.get("instrument") or {}}, ""))
        for key in declarations_of(settings):
            if not (key == FWHM and f"{OF_DATA}{name}.psf_fwhm" in free):
                yield f"{key} {settings[key]} of {name}"


def _single_settings(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted names and values of settings that are one number or word; those of components by their names."""
    for key, value in tree.items():
        named = prefix == "galaxy." and key == "components"
        below = {part["name"]: part for part in value} if named else value
        if isinstance(below, Mapping):
            yield from _single_settings(below, prefix if named else f"{prefix}{key}.")
        elif value is not None and not isinstance(value, list):
            yield f"{prefix}{key}", value


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows below their head, as many as there is room for: all columns but the first and the last two are numbers."""
    return [*table_lines(rows[: MOST_ROWS + 1], right=range(1, len(rows[0]) - 2)), *_left_out(rows)]


def _left_out(rows: Sequence[Sequence[str]]) -> list[str]:
    number = len(rows) - 1 - MOST_ROWS
    return [f"... and {number} more"] if number > 0 else []


def chi_square_line(quality: Quality) -> str:
    """How well the best model fits."""
    return (
        f"chi^2 {quality.chi_square:.6g} of {quality.n_voxel} voxels, {quality.degrees_of_freedom} degrees of freedom: "
        f"reduced chi^2 {quality.reduced:.4g}"
    )


def set_lines(verdict: Verdict) -> list[str]:
    """How well the best model fits each of several sets of data."""
    return [
        f"Of {name}: chi^2 {of_set.chi_square:.6g} of {of_set.n_voxel} voxels, {of_set.expected:.6g} expected"
        + (f" ({of_set.excess:+.3g} sigma)" if np.isfinite(of_set.excess) else "")
        + f", p {of_set.p:.2g}"
        + (f" by {of_set.worst}: the model does not describe it" if of_set.misfit else "")
        + most_of_all(of_set.where)
        for name, of_set in verdict.sets.items()
    ]


def _cells(row: TableRow) -> list[str]:
    """The numbers of a row as text: a value with its error; at the edge of a prior a limit, or an interval alone."""
    if row.reach is None:
        if not (np.isfinite(row.sigma) and row.sigma > 0):
            return [f"{row.value:.6g}", "-", "-"]
        ends = with_digits(row.sigma, row.value, row.low, row.high)[1:]
        return [plus_minus(row.value, row.sigma), *ends]
    if row.reach.sign:
        return [row.reach.words(), "-", "-"]
    width = max(0.5 * (row.high - row.low), _LEAST_DIGITS * max(abs(row.value), abs(row.high)))
    return with_digits(width, row.value, row.low, row.high)


def with_digits(sigma: float, *numbers: float) -> list[str]:
    """Numbers with as many digits as their standard deviation, which is positive, leaves room for."""
    digits = max(int(np.floor(np.log10(max(abs(numbers[0]), sigma)))) - int(np.floor(np.log10(sigma))) + 2, 2)
    return [f"{number:#.{digits}g}".rstrip(".") for number in numbers]


def _sample_rows(result: SampleResult) -> list[Sequence[str]]:
    found, limits = result.diagnostics, result.limits()
    low, high = result.interval()
    numbers = (result.enlarged_sigma, result.mean, result.sigma, low, result.quantile(0.5), high)
    worth = tuple(result.by_name(column) for column in (found.r_hat, found.ess_bulk, found.ess_tail))
    rows: list[Sequence[str]] = [
        ("parameter", "mean", "sd", _MARK, "16 %", "50 %", "84 %", "R-hat", "bulk ESS", "tail ESS", "unit", "prior")
    ]
    for parameter in result.free.parameters:
        columns = [np.ravel(of[parameter.name]) for of in (*numbers, *worth)]
        words = (parameter.unit or "-", shown(parameter.prior).strip("{}"))
        for label, enlarged, *row in zip(parameter.labels, *columns, strict=True):
            mean, sigma, *ends = _values(row[:5], limits.get(label))
            mark = "!" if label in limits else _enlarged(enlarged)
            forms = zip(row[5:], (".3f", ".0f", ".0f"), strict=True)
            of_draws = [f"{number:{form}}" if np.isfinite(number) else "-" for number, form in forms]
            rows.append((label, mean, sigma, mark, *ends, *of_draws, *words))
    return rows if result.verdict.misfit else [(*row[:3], *row[4:]) for row in rows]


def _sample_quality_lines(result: SampleResult) -> list[str]:
    """Lines on how the draws were made, how well the best model fits, how the data lie about what is predicted."""
    scatter = result.scatter
    checks = ", ".join(f"{name} {p:.2g}" for name, p in result.checks.items())
    approximate = not result.is_chain and find_sampler(result.method).is_approximate
    origin = " from an approximation of the posterior" if approximate else ""
    words = [result.size_words + origin, *describe_statistics(result.method, result.statistics)]
    if result.is_chain and np.isfinite(result.diagnostics.e_bfmi).any():
        words.append(f"E-BFMI {', '.join(f'{fraction:.2f}' for fraction in result.diagnostics.e_bfmi)}")
    return [
        f"{result.title}: {'; '.join(words)}",
        f"Best fit: {chi_square_line(result.quality)}",
        *set_lines(result.verdict),
        f"Predicted: {percent(scatter.within_one, 1)} of {scatter.n_voxel} voxels are within 1 sigma, "
        f"{percent(scatter.within_two, 1)} within 2 (of normal errors 68.3 % and 95.4 %)",
        *([f"Predictive checks, p: {checks}"] if checks else []),
        *assumed_lines(result),
        *([] if result.evidence is None else [result.evidence.sentence]),
    ]


def _values(numbers: Sequence[float], reach: Reach | None) -> list[str]:
    """At the edge of a prior there is no standard deviation, but a limit, or an interval alone."""
    mean, sigma, *limits = numbers
    if reach is not None and reach.sign:
        return [reach.words(), "-", *("-" for _ in limits)]
    if not (np.isfinite(sigma) and sigma > 0):
        return [f"{mean:.6g}", "-", *("-" for _ in limits)]
    shown_mean, *shown_limits = with_digits(sigma, mean, *limits)
    return [shown_mean, "-" if reach is not None else f"{sigma:.2g}", *shown_limits]
