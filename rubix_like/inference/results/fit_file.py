"""The file of a fit's result: HDF5 that describes itself (docs/fit-file.md)."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.hdf5_cube import write_group
from rubix_like.forward.parameters import DustParameters, InstrumentParameters, ObservationParameters, Parameters
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.inference.checks.discreteness import Discreteness
from rubix_like.inference.checks.edges import LIMIT, Edges
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.results.fit_result import FitResult, split_by_name
from rubix_like.inference.results.result_parts import (
    TEXT,
    Column,
    ResultKind,
    check_alike,
    describe_dataset,
    is_kind,
    numbers_of,
    read_best,
    read_column,
    read_cubes,
    read_free_from_file,
    read_origin,
    read_quality,
    read_verdict,
    read_whole,
    write_best,
    write_free,
    write_origin,
    write_quality,
    write_verdict,
    write_whole,
)
from rubix_like.inference.search.search_state import SearchState
from rubix_like.instrument.psf import PSFParameters

KIND = ResultKind(
    format="rubix_like fit",
    layout=2,
    description="maximum of the posterior of a datacube, and its Gaussian approximation there",
    name="result of a fit",
    writers="FitResult.write or `rubix-like fit`",
    place="a fit writes to its fit.output",
)
"""By its format our files are known."""

_EDGES: Mapping[str, str] = {
    "index": "places among the labels of the values at the edge of their priors",
    "latent": "latents at which the posterior of each is tabulated",
    "density": "its density there",
    "lower_loss": "by how much the loss is lower elsewhere along the latent",
    "lower_at": "at which latent that is",
}

_STARTS: Mapping[str, str] = {
    "start": "latents at which each start began",
    "latent": "latents at which each start ended",
    "loss": "half of chi^2 and of the squared latents, where each start ended",
    "gradient_norm": "norm of the gradient of the loss there",
    "n_step": "steps of each start",
    "status": "why each start ended: 1 converged, others see reasons",
    "trace_loss": "loss after each step; NaN after the last",
    "trace_gradient_norm": "norm of its gradient after each step",
    "trace_latent": "latents after each step; empty where they would take too much room",
}


_DISCRETENESS: Mapping[str, str] = {
    "shift": "of the best latents, with n_compared stars in place of n_stars",
    "sigma": "standard deviations of the latents by the data alone",
}


def write_result(result: FitResult, path: Path) -> Path:
    """Write a result, whole or not at all; raises OSError with the remedy where it cannot be written."""
    return write_whole(path, KIND, lambda file: _write(result, file))


def is_result(path: Path) -> bool:
    """Whether a file is the result of a fit, whole or not."""
    return is_kind(path, KIND)


def read_result(path: Path) -> FitResult:
    """The result in a file made by `write_result`; float64 needs 64-bit numbers switched on in JAX, else float32.

    Raises FileNotFoundError, or ValueError if the file is no complete result.
    """
    return read_whole(path, KIND, _read)


def _write(result: FitResult, file: Any) -> None:
    write_quality(result.quality, file)
    write_verdict(result.verdict, file)
    file.attrs["converged"] = result.converged
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
        columns["discreteness"] = Column(split_by_name(result.free, grain.values), "its shift by many more draws")
        columns["data_sigma"] = Column(split_by_name(result.free, grain.value_sigma), "sigma without that shift")
    write_free(result.free, columns, file)
    if result.covariance is not None:
        describe_dataset(
            file.create_dataset("covariance", data=result.covariance), "units of the labels", "covariance of the values"
        )
    write_best(result.latent, result.laplace, file.create_group("latent"))
    _write_edges(result.edges, file.create_group("edges"))
    if grain is not None:
        _write_discreteness(grain, file.create_group("discreteness"))
    _write_starts(result.starts, file.create_group("starts"))
    for name in ("model", "residual"):
        write_group(in_parts(getattr(result, name)), file.create_group(name))
    _write_tree(result.parameters, file.create_group("model_parameters"))
    if result.galaxy is not None:
        _write_tree(result.galaxy, file.create_group("galaxy"))
    write_origin(result.config, result.versions, result.notes, file)


def _write_discreteness(grain: Discreteness, group: Any) -> None:
    """Its arrays as latents, its numbers as attributes."""
    for name, meaning in _DISCRETENESS.items():
        describe_dataset(group.create_dataset(name, data=getattr(grain, name)), "", meaning)
    group.attrs.update({"n_stars": grain.n_stars, "n_compared": grain.n_compared, "kind": grain.kind})


def _read_discreteness(free: Free, latent: np.ndarray, group: Any) -> Discreteness:
    shift, sigma = (numbers_of(group[name], latent.shape) for name in _DISCRETENESS)
    n_stars, n_compared = (int(group.attrs[name]) for name in ("n_stars", "n_compared"))
    return Discreteness(free, latent, shift, sigma, n_stars, n_compared, str(group.attrs["kind"]))


def _marks(result: FitResult) -> dict[str, Column]:
    """Which values are limits, and which uncertainties are too small."""
    kinds, limits = np.full(len(result.labels), b"value", "S11"), np.full(len(result.labels), np.nan)
    for label, reach in result.limits().items():
        number = result.labels.index(label)
        kinds[number] = {"<": b"upper limit", ">": b"lower limit"}.get(reach.sign, b"interval")
        limits[number] = {"<": reach.high, ">": reach.low}.get(reach.sign, np.nan)
    doubtful = split_by_name(result.free, result.verdict.doubtful)
    kind = "value (with sigma), or at the edge of the prior interval (low to high), upper limit or lower limit"
    return {
        "kind": Column(split_by_name(result.free, kinds), kind, pure=True),
        "limit": Column(
            split_by_name(result.free, limits), f"the limit with probability {LIMIT}; NaN where it is none"
        ),
        "doubtful": Column(doubtful, "whether the uncertainty is too small, because the model does not fit", pure=True),
    }


def _write_edges(edges: Edges, group: Any) -> None:
    for name, meaning in _EDGES.items():
        describe_dataset(group.create_dataset(name, data=getattr(edges, name)), "", meaning)


def _read_edges(group: Any, n_number: int) -> Edges:
    index = numbers_of(group["index"])
    count, n_node = np.shape(group["latent"])
    if index.shape != (count,) or index.dtype.kind != "i" or not ((index >= 0) & (index < n_number)).all():
        raise ValueError(f"edges/index: expected {count} places among {n_number} labels, got {index.tolist()}")
    table = {name: numbers_of(group[name], (count, n_node), finite=True) for name in ("latent", "density")}
    return Edges(index, **table, **{name: numbers_of(group[name], (count,)) for name in ("lower_loss", "lower_at")})


def _write_starts(starts: SearchState, group: Any) -> None:
    for name, meaning in _STARTS.items():
        describe_dataset(group.create_dataset(name, data=getattr(starts, name)), "", meaning)
    reasons = group.create_dataset("reasons", data=list(starts.reasons()), dtype=TEXT)
    describe_dataset(reasons, "", "why each start ended, in words")


def _write_tree(tree: Any, group: Any) -> None:
    """Every array of a pytree under its dotted name."""
    for name, leaf in _named_leaves(tree, ""):
        group[name] = np.asarray(leaf)


def _named_leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, eqx.Module):
        if tree is not None:
            yield name, tree
        return
    for field in dataclasses.fields(tree):
        yield from _named_leaves(getattr(tree, field.name), f"{name}.{field.name}".removeprefix("."))


def _read(file: Any) -> FitResult:
    free = read_free_from_file(file, of="value")
    latent, laplace = read_best(free, file["latent"])
    arrays = {name: numbers_of(file["starts"][name]) for name in _STARTS}
    values, sigma = read_column(file, "value", finite=True), read_column(file, "sigma")
    check_alike(values, sigma, "sigma")
    n_number = len(free.labels)
    starts = SearchState(**arrays, slots=np.zeros(0, np.int64), state=())
    _check_starts(starts, n_number)
    return FitResult(
        free=free,
        values=values,
        sigma=sigma,
        covariance=numbers_of(file["covariance"], (n_number, n_number)) if "covariance" in file else None,
        latent=latent,
        laplace=laplace,
        discreteness=_read_discreteness(free, latent, file["discreteness"]) if "discreteness" in file else None,
        quality=read_quality(file),
        verdict=read_verdict(file, n_number),
        edges=_read_edges(file["edges"], n_number),
        starts=starts,
        **read_cubes(file, ("model", "residual"), ("residual",)),
        parameters=_parameters_of({name: data[()] for name, data in file["model_parameters"].items()}),
        galaxy=_galaxy_of({name: data[()] for name, data in file["galaxy"].items()}) if "galaxy" in file else None,
        **read_origin(file),
    )


def _check_starts(starts: SearchState, n_number: int) -> None:
    """Raise ValueError where the arrays are not of the same starts, or an end is none that is known."""
    n_start, n_step = len(starts.start), starts.trace_loss.shape[-1]
    expected = {"start": (n_start, n_number), "latent": (n_start, n_number)}
    expected |= dict.fromkeys(("loss", "gradient_norm", "n_step", "status"), (n_start,))
    expected |= dict.fromkeys(("trace_loss", "trace_gradient_norm"), (n_start, n_step))
    for name, shape in expected.items():
        if getattr(starts, name).shape != shape:
            raise ValueError(f"starts/{name}: expected shape {shape}, got {getattr(starts, name).shape}")
    starts.reasons()


def _parameters_of(leaves: Mapping[str, Any]) -> Parameters:
    """From dotted names to the parameters; sections without a name were None."""
    psf = _below(leaves, "instrument.psf.")
    dust = _below(leaves, "dust.")
    return Parameters(
        observation=ObservationParameters(**_with_nones(ObservationParameters, _below(leaves, "observation."))),
        instrument=InstrumentParameters(psf=PSFParameters(**_with_nones(PSFParameters, psf)) if psf else None),
        dust=DustParameters(**dust) if dust else None,
    )


def _galaxy_of(leaves: Mapping[str, Any]) -> Galaxy:
    gas = _below(leaves, "gas.")
    return Galaxy(stars=Stars(**_below(leaves, "stars.")), gas=Gas(**gas) if gas else None)


def _below(leaves: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    chosen = {name: leaf for name, leaf in leaves.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): jnp.asarray(leaf) for name, leaf in chosen.items()}


def _with_nones(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    return {field.name: values.get(field.name) for field in dataclasses.fields(kind)}
