"""The files of fits and of samples: HDF5 that describes itself (docs/fit-file.md, docs/sample-file.md)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rubix_like.config.messages import refusal
from rubix_like.config.plug_ins import SAMPLERS
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.inference.checks.finite_points import Discreteness
from rubix_like.inference.checks.uncertainties import LIMIT, Edges, Evidence
from rubix_like.inference.checks.verdict import Scatter
from rubix_like.inference.described_trees import add_dataset, numbers_of, read_tree, texts_of, write_tree
from rubix_like.inference.populations.populations import Populations
from rubix_like.inference.posterior.free_parameters import declarations_of
from rubix_like.inference.results.result_summaries import verdict_line
from rubix_like.inference.results.results import (
    POINTWISE,
    TEXT,
    Column,
    FitResult,
    ResultKind,
    SampleResult,
    check_alike,
    read_best,
    read_column,
    read_free_from_file,
    read_shared,
    write_best,
    write_free,
    write_shared,
)
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.inference.samplers.samplers import LOSS, find_sampler
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.files.writers import FIT, SAMPLES

_FIT_CUBES = ("model", "residual")


def _write_fit(result: FitResult, file: Any) -> None:
    write_shared(result, verdict_line(result), _FIT_CUBES, file)
    file.attrs.update({"converged": result.converged, "inflation": result.inflation})
    if result.evidence is not None:
        write_tree(result.evidence, file.create_group("evidence"))
    low, high = result.interval()
    grain = result.discreteness
    columns = {
        "value": Column(result.values, "the best value"),
        "sigma": Column(result.sigma, "its standard deviation; NaN at the edge of its prior"),
        "low": Column(low, "16 % of the posterior lie below; of an upper limit the end of the prior"),
        "high": Column(high, "16 % of the posterior lie above; of a lower limit the end of the prior"),
        **_marks(result),
    }
    if grain is not None:
        columns["discreteness"] = Column(result.free.split(grain.values), "its shift by many more draws")
        columns["data_sigma"] = Column(result.free.split(grain.value_sigma), "sigma without that shift")
    write_free(result.free, columns, file)
    if result.covariance is not None:
        add_dataset(file, "covariance", result.covariance, "covariance of the values", "units of the labels")
    write_best(result.latent, result.laplace, file.create_group("latent"))
    write_tree(result.edges, file.create_group("edges"))
    if grain is not None:
        write_tree(grain, file.create_group("discreteness"))
    starts = file.create_group("starts")
    write_tree(result.starts, starts)
    add_dataset(starts, "reasons", list(result.starts.reasons()), "why each start ended, in words", dtype=TEXT)
    if result.populations:
        every = file.create_group("populations", track_order=True)
        for name, populations in result.populations.items():
            write_tree(populations, every.create_group(name))
    model = file.create_group("model_parameters")
    _write_leaves(result.parameters, model)
    for name, declared in declarations_of(model).items():
        model[name].attrs.update({"unit": declared.unit, "description": declared.meaning})
    if result.galaxy is not None:
        _write_leaves(result.galaxy, file.create_group("galaxy"))


def _marks(result: FitResult) -> dict[str, Column]:
    """Which values are limits, and which uncertainties are too small."""
    kinds, limits = np.full(len(result.labels), b"value", "S11"), np.full(len(result.labels), np.nan)
    for label, reach in result.limits().items():
        number = result.labels.index(label)
        kinds[number] = {"<": b"upper limit", ">": b"lower limit"}.get(reach.sign, b"interval")
        limits[number] = {"<": reach.high, ">": reach.low}.get(reach.sign, np.nan)
    doubtful = result.free.split(result.verdict.doubtful)
    enlarged = "sigma with what a misfit adds to it; sigma where there is none"
    kind = "value (with sigma), or at the edge of the prior interval (low to high), upper limit or lower limit"
    return {
        "kind": Column(result.free.split(kinds), kind, pure=True),
        "limit": Column(result.free.split(limits), f"the limit with probability {LIMIT}; NaN where it is none"),
        "doubtful": Column(doubtful, "whether sigma holds for the model only, because it does not fit", pure=True),
        "enlarged_sigma": Column(result.enlarged_sigma, enlarged),
    }


def _write_leaves(tree: Any, group: Any) -> None:
    """Every array of a pytree under its dotted name."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        group[jax.tree_util.keystr(path, simple=True, separator=".")] = np.asarray(leaf)


def _read_leaves(group: Any) -> dict[str, Any]:
    return {name: jnp.asarray(data[()]) for name, data in group.items()}


def _read_fit(file: Any) -> FitResult:
    free = read_free_from_file(file, of="value")
    latent, laplace = read_best(free, file["latent"])
    values, sigma = read_column(file, "value", finite=True), read_column(file, "sigma")
    check_alike(values, sigma, "sigma")
    n_number = len(free.labels)
    sizes, grain = {"latent": n_number}, file.get("discreteness")
    starts = SearchState(**read_tree(SearchState, file["starts"], sizes), slots=np.zeros(0, np.int64), state=())
    starts.reasons()  # raises ValueError for an end that is not known
    group = file["edges"]
    edges = Edges(**read_tree(Edges, group))
    if not ((edges.index >= 0) & (edges.index < n_number)).all():
        raise ValueError(f"edges/index: expected places among {n_number} labels, got {edges.index.tolist()}")
    if not (np.isfinite(edges.latent).all() and np.isfinite(edges.density).all()):
        raise ValueError("edges: expected finite latents and densities, got others")
    return FitResult(
        free=free,
        values=values,
        sigma=sigma,
        covariance=numbers_of(file["covariance"], (n_number, n_number)) if "covariance" in file else None,
        latent=latent,
        laplace=laplace,
        discreteness=None if grain is None else Discreteness(free, latent, **read_tree(Discreteness, grain, sizes)),
        edges=edges,
        starts=starts,
        parameters=Parameters.of(_read_leaves(file["model_parameters"])),
        galaxy=_galaxy_of(_read_leaves(file["galaxy"])) if "galaxy" in file else None,
        evidence=Evidence(**read_tree(Evidence, file["evidence"])) if "evidence" in file else None,
        inflation=float(file.attrs.get("inflation", 1.0)),
        populations={
            name: Populations(labels=(name,), **read_tree(Populations, group))
            for name, group in file.get("populations", {}).items()
        },
        **read_shared(file, n_number, _FIT_CUBES, ("residual",)),
    )


def _galaxy_of(leaves: dict[str, Any]) -> Galaxy:
    stars, gas = (
        {name.removeprefix(kind): leaf for name, leaf in leaves.items() if name.startswith(kind)}
        for kind in ("stars.", "gas.")
    )
    return Galaxy(stars=Stars(**stars), gas=Gas(**gas) if gas else None)


FIT_FILE = ResultKind(
    format=FIT,
    layout=4,
    description="maximum of the posterior of a datacube, and its Gaussian approximation there",
    name="result of a fit",
    writers="FitResult.write or `rubix-like fit`",
    place="a fit writes to its fit.output",
    fill=_write_fit,
    parse=_read_fit,
)


_SAMPLE_CUBES = ("model", "predictive", "residual")

_OF_NUMBERS: Mapping[str, str] = {
    "r_hat": "spread of all draws over that within chains",
    "ess_bulk": "effective sample size for means",
    "ess_tail": "effective sample size for limits",
}


def _write_samples(result: SampleResult, file: Any) -> None:
    write_shared(result, result.verdict.sentence, _SAMPLE_CUBES, file)
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
        add_dataset(checks, "p", found, "probability that replicated data are further from the model")


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
    columns["doubtful"] = Column(doubtful, "whether sigma holds for the model only: it does not fit", pure=True)
    columns["enlarged_sigma"] = Column(
        result.enlarged_sigma, "sigma with what a misfit adds to it; sigma where there is none"
    )
    for name, meaning in _OF_NUMBERS.items():
        columns[name] = Column(result.by_name(getattr(result.diagnostics, name)), meaning, pure=True)
    return columns


def _read_samples(file: Any) -> SampleResult:
    free = read_free_from_file(file, of="best")
    best, laplace = read_best(free, file["latent"])
    numbers = {name: free.join(read_column(file, name)) for name in _OF_NUMBERS}
    latent, values = numbers_of(file["latent/draws"], finite=True), read_column(file, "draws", finite=True)
    statistics = {name: numbers_of(data) for name, data in file["statistics"].items()}
    draws = latent.shape[:-1]
    expected = {parameter.name: (*draws, *parameter.shape) for parameter in free.parameters} | dict.fromkeys(
        statistics, draws
    )
    if latent.shape[-1:] != (len(free.labels),):
        raise ValueError(f"latent/draws: expected {len(free.labels)} numbers of each draw, got shape {latent.shape}")
    for name, own in {**values, **statistics}.items():
        if own.shape != expected[name]:
            raise ValueError(f"{name}: expected shape {expected[name]}, got {own.shape}")
    method = str(file.attrs["method"])
    if removed := refusal("fit.sampling.method", method):
        raise ValueError(f"its sampler is one that only rubix_like 0.2.0 reads: {removed}")
    if method not in SAMPLERS:
        raise ValueError(f"its attribute 'method' is {method!r}, expected one of {', '.join(SAMPLERS.names())}")
    return SampleResult(
        free=free,
        method=method,
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
        **read_shared(file, len(free.labels), _SAMPLE_CUBES, _SAMPLE_CUBES),
    )


def _checks(group: Any) -> dict[str, float]:
    names, found = texts_of(group["names"]), numbers_of(group["p"])
    return dict(zip(map(str, names), found.tolist(), strict=True))


def _of_chains(dataset: Any) -> np.ndarray:
    values = numbers_of(dataset)
    if values.ndim != 1:
        raise ValueError(f"{dataset.name}: expected one number of each chain, got shape {values.shape}")
    return values


SAMPLE_FILE = ResultKind(
    format=SAMPLES,
    layout=3,
    description="draws from the posterior of a datacube, and what they predict",
    name="file of samples",
    writers="SampleResult.write or `rubix-like sample`",
    place="sampling writes to its fit.sampling.output",
    fill=_write_samples,
    parse=_read_samples,
)
