"""The file of samples: HDF5 that describes itself (docs/sample-file.md)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rubix_like.config.messages import refusal
from rubix_like.config.plug_ins import SAMPLERS
from rubix_like.inference.checks.evidence import Evidence
from rubix_like.inference.described_trees import add_dataset, numbers_of, read_tree, texts_of, write_tree
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.quality import Scatter
from rubix_like.inference.results.result_parts import (
    TEXT,
    Column,
    ResultKind,
    read_best,
    read_column,
    read_free_from_file,
    read_shared,
    write_best,
    write_free,
    write_shared,
)
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.results.set_result import POINTWISE
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.inference.samplers.predictive_checks import Pointwise
from rubix_like.inference.samplers.samplers import LOSS, find_sampler
from rubix_like.runtime.files.writers import SAMPLES

_CUBES = ("model", "predictive", "residual")

_OF_NUMBERS: Mapping[str, str] = {
    "r_hat": "spread of all draws over that within chains",
    "ess_bulk": "effective sample size for means",
    "ess_tail": "effective sample size for limits",
}


def _write(result: SampleResult, file: Any) -> None:
    write_shared(result, result.verdict.sentence, _CUBES, file)
    file.attrs.update({"method": result.method, "n_chain": result.n_chain, "n_draw": result.n_draw})
    write_free(result.free, _columns(result), file)
    latent = file.create_group("latent")
    write_best(result.best, result.laplace, latent)
    add_dataset(latent, "draws", result.latent, "the draws as latents: chain, draw, latent")
    statistics = file.create_group("statistics", track_order=True)
    known = {"loss": LOSS, **find_sampler(result.method).statistics}
    for name, values in result.statistics.items():
        add_dataset(statistics, name, values, known[name].meaning)
    add_dataset(file, "keys", result.keys, "random keys of the chains, or of pairs of draws")
    if result.step_size is not None:
        add_dataset(file, "step_size", result.step_size, "of the leapfrog steps of each chain")
    add_dataset(file, "e_bfmi", result.diagnostics.e_bfmi, "of each chain")
    write_tree(result.scatter, file.create_group("scatter"))
    if result.evidence is not None:
        write_tree(result.evidence, file.create_group("evidence"))
    if result.pointwise is not None:
        write_tree(result.pointwise, file.create_group(POINTWISE))
    if result.checks:
        checks = file.create_group("checks")
        add_dataset(checks, "names", list(result.checks), "names of the posterior-predictive checks", dtype=TEXT)
        found = np.array(list(result.checks.values()), float)
        add_dataset(checks, "p", found, "share of the draws whose replicated data are further from the model")


def _columns(result: SampleResult) -> dict[str, Column]:
    low, high = result.interval()
    columns = {
        "draws": Column(result.values, "the draws: chain, draw, ..."),
        "best": Column(result.best_values, "the best fit's value"),
        "mean": Column(result.mean, "mean of the draws"),
        "sigma": Column(result.sigma, "their standard deviation"),
        "low": Column(low, "16 % of the draws lie below"),
        "median": Column(result.quantile(0.5), "half of the draws lie below"),
        "high": Column(high, "16 % of the draws lie above"),
    }
    doubtful = result.by_name(result.verdict.doubtful)
    columns["doubtful"] = Column(doubtful, "whether sigma is too small, because the model does not fit", pure=True)
    for name, meaning in _OF_NUMBERS.items():
        columns[name] = Column(result.by_name(getattr(result.diagnostics, name)), meaning, pure=True)
    return columns


def _read(file: Any) -> SampleResult:
    free = read_free_from_file(file, of="best")
    best, laplace = read_best(free, file["latent"])
    numbers = {name: free.join(read_column(file, name)) for name in _OF_NUMBERS}
    latent, values = numbers_of(file["latent/draws"], finite=True), read_column(file, "draws", finite=True)
    statistics = {name: numbers_of(data) for name, data in file["statistics"].items()}
    _check_draws(free, latent, values, statistics)
    return SampleResult(
        free=free,
        method=_method(file),
        latent=latent,
        values=values,
        statistics=statistics,
        step_size=_of_chains(file["step_size"]) if "step_size" in file else None,
        keys=numbers_of(file["keys"]),
        diagnostics=Convergence(**numbers, e_bfmi=_of_chains(file["e_bfmi"])),
        best=best,
        laplace=laplace,
        scatter=Scatter(**read_tree(Scatter, file["scatter"])),
        evidence=Evidence(**read_tree(Evidence, file["evidence"])) if "evidence" in file else None,
        checks=_checks(file["checks"]) if "checks" in file else {},
        pointwise=Pointwise(**read_tree(Pointwise, file[POINTWISE])) if POINTWISE in file else None,
        **read_shared(file, len(free.labels), _CUBES, _CUBES),
    )


def _checks(group: Any) -> dict[str, float]:
    names, found = texts_of(group["names"]), numbers_of(group["p"])
    return dict(zip(map(str, names), found.tolist(), strict=True))


def _method(file: Any) -> str:
    method = str(file.attrs["method"])
    if removed := refusal("fit.sampling.method", method):
        raise ValueError(f"its sampler is one that only rubix_like 0.2.0 reads: {removed}")
    if method not in SAMPLERS:
        raise ValueError(f"its attribute 'method' is {method!r}, expected one of {', '.join(SAMPLERS.names())}")
    return method


def _of_chains(dataset: Any) -> np.ndarray:
    values = numbers_of(dataset)
    if values.ndim != 1:
        raise ValueError(f"{dataset.name}: expected one number of each chain, got shape {values.shape}")
    return values


def _check_draws(
    free: Free, latent: np.ndarray, values: Mapping[str, np.ndarray], statistics: Mapping[str, np.ndarray]
) -> None:
    """Raise ValueError where the arrays are not of the same draws."""
    draws = latent.shape[:-1]
    expected = {own.name: (*draws, *own.shape) for own in free.parameters} | dict.fromkeys(statistics, draws)
    if latent.shape[-1:] != (len(free.labels),):
        raise ValueError(f"latent/draws: expected {len(free.labels)} numbers of each draw, got shape {latent.shape}")
    for name, own in {**values, **statistics}.items():
        if own.shape != expected[name]:
            raise ValueError(f"{name}: expected shape {expected[name]}, got {own.shape}")


SAMPLE_FILE = ResultKind(
    format=SAMPLES,
    layout=3,
    description="draws from the posterior of a datacube, and what they predict",
    name="file of samples",
    writers="SampleResult.write or `rubix-like sample`",
    place="sampling writes to its fit.sampling.output",
    fill=_write,
    parse=_read,
)
