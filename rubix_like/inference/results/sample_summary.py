"""What sampling says at its end: a table of the values with what their draws are worth, and how far to trust them."""

from collections.abc import Sequence

import numpy as np

from rubix_like.inference.checks.edges import Reach
from rubix_like.inference.posterior.free import shown
from rubix_like.inference.results.fit_summary import aligned, chi_square_line, legend, marks_of, with_digits
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.samplers.samplers import describe_statistics
from rubix_like.runtime.words import counted, percent

_HEAD = ("parameter", "mean", "sd", "16 %", "50 %", "84 %", "R-hat", "bulk ESS", "tail ESS", "unit", "prior")


def sample_summary_lines(result: SampleResult) -> list[str]:
    """The end-of-sampling text, one sentence a line."""
    notes = (f"Note: {note}" for note in result.notes)
    return [result.verdict.sentence, *sample_table_lines(result), *sample_quality_lines(result), *notes]


def sample_table_lines(result: SampleResult) -> list[str]:
    """Mean, standard deviation, limits, R-hat and effective sample sizes, units and priors, aligned."""
    found = result.diagnostics
    low, high = result.interval()
    numbers = (result.mean, result.sigma, low, result.quantile(0.5), high)
    worth = tuple(result.by_name(own) for own in (found.r_hat, found.ess_bulk, found.ess_tail))
    limits, marks = result.limits(), marks_of(result.labels, result.verdict)
    rows: list[Sequence[str]] = [_HEAD]
    for own in result.free.parameters:
        columns = [np.ravel(of[own.name]) for of in (*numbers, *worth)]
        words = (own.unit or "-", shown(own.prior).strip("{}"))
        rows += [
            (label, *_values(row[:5], limits.get(label), marks[label]), *_worth(*row[5:]), *words)
            for label, *row in zip(own.labels, *columns, strict=True)
        ]
    return [*aligned(rows), *legend(result.verdict)]


def sample_quality_lines(result: SampleResult) -> list[str]:
    """How the draws were made, how well the best model fits, how the data lie about what is predicted."""
    scatter = result.scatter
    return [
        _draws_line(result),
        f"Best fit: {chi_square_line(result.quality)}",
        f"Predicted: {percent(scatter.within_one, 1)} of {scatter.n_voxel} voxels are within 1 sigma, "
        f"{percent(scatter.within_two, 1)} within 2 (of normal errors 68.3 % and 95.4 %)",
    ]


def _draws_line(result: SampleResult) -> str:
    said = describe_statistics(result.method, result.statistics)
    if not result.is_chain:
        return "; ".join(
            [f"{result.title}: {counted(result.n_draw, 'draw')} from an approximation of the posterior", *said]
        )
    words = [f"{counted(result.n_chain, 'chain')} of {counted(result.n_draw, 'draw')}", *said]
    if np.isfinite(result.diagnostics.e_bfmi).any():
        words.append(f"E-BFMI {', '.join(f'{own:.2f}' for own in result.diagnostics.e_bfmi)}")
    return f"{result.title}: {'; '.join(words)}"


def _values(numbers: Sequence[float], reach: Reach | None, mark: str) -> list[str]:
    """At the edge of a prior there is no standard deviation, but a limit, or an interval alone."""
    mean, sigma, *limits = numbers
    if reach is not None and reach.sign:
        return [reach.words() + mark, "-", *("-" for _ in limits)]
    if not (np.isfinite(sigma) and sigma > 0):
        return [f"{mean:.6g}", "-", *("-" for _ in limits)]
    shown_mean, *shown_limits = with_digits(sigma, mean, *limits)
    return [shown_mean, ("-" if reach is not None else f"{sigma:.2g}") + mark, *shown_limits]


def _worth(r_hat: float, bulk: float, tail: float) -> list[str]:
    """A dash where there is no such number."""
    forms = ((r_hat, ".3f"), (bulk, ".0f"), (tail, ".0f"))
    return [f"{number:{form}}" if np.isfinite(number) else "-" for number, form in forms]
