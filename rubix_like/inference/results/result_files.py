"""The files of fits and of samples: HDF5 that describes itself (docs/fit-file.md, docs/sample-file.md).

Fields of a result that are described go to the file and come back as one tree (`described_trees`). Written beside it is
what is stored for each parameter, and what follows from the fields, for people and other programs. All axes have names,
so that xarray and ArviZ open the file.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from rubix_like.config.messages import refusal
from rubix_like.config.plug_ins import SAMPLERS
from rubix_like.config.sections.fit import CorrelatedSettings
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.inference.checks.uncertainties import LIMIT
from rubix_like.inference.checks.verdict import SetVerdict
from rubix_like.inference.described_trees import add_dataset, name_axes, numbers_of, read_tree, texts_of, write_tree
from rubix_like.inference.posterior.fit_model import Free, FreeParameter, read_prior
from rubix_like.inference.posterior.free_parameters import declarations_of, read_correlated
from rubix_like.inference.posterior.priors import section_of
from rubix_like.inference.results.inference_data import link_groups, parameter_axes
from rubix_like.inference.results.result_summaries import verdict_line
from rubix_like.inference.results.results import AbstractResult, FitResult, SampleResult
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.inference.samplers.samplers import LOSS, find_sampler
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import date_words, replacing
from rubix_like.runtime.files.writers import CREATOR, FIT, SAMPLES, check_outputs
from rubix_like.runtime.notes import as_notes, tagged, tags_of
from rubix_like.runtime.words import reason_of

_TEXT = h5py.string_dtype()


def _write_free(free: Free, file: Any) -> None:
    """The group `parameters` with the unit and prior of each, which `_write_column` fills, and the labels."""
    parameters = file.create_group("parameters", track_order=True)
    for parameter in free.parameters:
        group = parameters.create_group(parameter.name)
        group.attrs.update({"unit": parameter.unit, "description": parameter.meaning})
        prior = json.dumps(section_of(parameter.prior))
        _write_texts(group, "prior", prior, "the prior as in the section fit.free, {kind: numbers in the unit}")
    if free.correlated:
        halves = [(correlated.names, np.asarray(correlated.half)) for correlated in free.correlated]
        groups = [{"parameters": names, "correlation": (half @ half.T).tolist()} for names, half in halves]
        meaning = "groups of priors that are correlated, as fit.correlated"
        _write_texts(file, "correlated", json.dumps(groups), meaning)
    _write_texts(file, "labels", free.labels, "names of the free numbers, in the order of matrices and of the latents")


def _read_free(file: Any, column: str) -> Free:
    """The free parameters of a file; `column` has their shape."""
    parameters = []
    for name, group in file["parameters"].items():
        section = json.loads(texts_of(group["prior"]))
        unit, meaning = (str(group.attrs[what]) for what in ("unit", "description"))
        prior = read_prior(name, section, unit)
        parameters.append(FreeParameter(prior, name, group[column].shape, unit, meaning))
    groups = json.loads(texts_of(file["correlated"])) if "correlated" in file else []
    return Free(tuple(parameters), read_correlated(map(CorrelatedSettings.model_validate, groups), parameters))


def _write_column(
    file: Any, free: Free, name: str, values: Mapping[str, Shaped[ndarray, "..."]], meaning: str, *, pure: bool = False
) -> None:
    """One array of every parameter, draws of it with the axes chain and draw; `pure`: numbers without its unit."""
    for parameter in free.parameters:
        unit, axes = "" if pure else parameter.unit, parameter_axes(parameter)
        if np.ndim(values[parameter.name]) > len(axes):
            axes = ["chain", "draw", *axes]
        add_dataset(file["parameters"][parameter.name], name, values[parameter.name], meaning, unit, axes)


def _read_column(
    file: Any, free: Free, name: str, draws: tuple[int, ...] = (), *, finite: bool = False
) -> dict[str, ndarray]:
    """One array of every parameter, after the axes of draws; h5py gives scalars where there were arrays without any."""
    return {
        parameter.name: numbers_of(file["parameters"][parameter.name][name], (*draws, *parameter.shape), finite=finite)
        for parameter in free.parameters
    }


def _write_texts(group: Any, name: str, texts: str | Iterable[str], meaning: str) -> None:
    texts = texts if isinstance(texts, str) else list(texts)
    add_dataset(group, name, texts, meaning, dtype=_TEXT, shape=() if isinstance(texts, str) else (len(texts),))


def _write_shares(group: Any, places: tuple[str, str], shares: Mapping[str, float], *meanings: str) -> None:
    _write_texts(group, places[0], shares, meanings[0])
    add_dataset(group, places[1], np.array(list(shares.values()), float), meanings[1])


def _read_shares(group: Any, names: str, numbers: str) -> dict[str, float]:
    return dict(zip(map(str, texts_of(group[names])), numbers_of(group[numbers]).tolist(), strict=True))


def _write_shared(result: FitResult | SampleResult, first_line: str, file: Any) -> None:
    """The tree of a result of either kind, and what is beside it."""
    _write_free(result.free, file)
    write_tree(result, file)
    quality, verdict, group = result.quality, result.verdict, file["verdict"]
    file.attrs.update({"degrees_of_freedom": quality.degrees_of_freedom, "reduced_chi_square": quality.reduced})
    group.attrs.update({"text": first_line, "misfit": verdict.misfit, "matters": verdict.matters})
    of_tests = "of such residuals, if the model is true, by each of the tests"
    _write_shares(group, ("tests", "probabilities"), verdict.tests, "names of the tests", of_tests)
    add_dataset(group, "doubtful", verdict.doubtful, "which uncertainties hold for the model only")
    add_dataset(group, "enlarged", verdict.enlarged, "factors by which uncertainties are too small at least")
    doubtful = result.free.split(verdict.doubtful)
    meaning = "whether sigma holds for the model only, because it does not fit"
    _write_column(file, result.free, "doubtful", doubtful, meaning, pure=True)
    meaning = "sigma with what a misfit adds to it; sigma where there is none"
    _write_column(file, result.free, "enlarged_sigma", result.enlarged_sigma, meaning)
    for name, of_set in verdict.sets.items():
        if name in result.sets:
            write_tree(of_set, file["data_sets"][name])
    file["config"] = result.config
    notes = file.create_dataset("notes", data=list(result.notes), dtype=_TEXT, shape=(len(result.notes),))
    notes.attrs.create("tags", tags_of(as_notes(result.notes)), dtype=_TEXT, shape=(len(result.notes),))


def _read_shared(kind: type[AbstractResult], file: Any, free: Free, varies: Iterable[str]) -> dict[str, Any]:
    """The fields that `_write_shared` wrote, by name; the cubes have one shape, and those that vary a variance."""
    n_number = len(free.labels)
    places = file.get("data_sets", {}).items()
    others = {
        "free": free,
        "latent": numbers_of(file["latent/best"], (n_number,), finite=True),
        "tests": _read_shares(file["verdict"], "tests", "probabilities"),
        "sets": {name: SetVerdict(**read_tree(SetVerdict, group)) for name, group in places if "p" in group.attrs},
        "slots": np.zeros(0, np.int64),
        "state": (),
    }
    found = read_tree(kind, file, {"latent": n_number}, **others)
    expected = np.shape(found["model"].flux)
    for name in ("model", "residual", "predictive"):
        cube = found.get(name, found["model"])
        if np.shape(cube.flux) != expected:
            raise ValueError(f"{name}/flux: expected the shape of model/flux, {expected}, got {np.shape(cube.flux)}")
        if name in varies and cube.variance is None:
            raise ValueError(f"{name}/variance: expected a variance in every voxel, got none")
    notes = tagged(list(texts_of(file["notes"])), list(file["notes"].attrs.get("tags", ())))
    return {**found, "free": free, "config": texts_of(file["config"]), "notes": notes}


def _write_fit(result: FitResult, file: Any) -> None:
    _write_shared(result, verdict_line(result), file)
    free, grain = result.free, result.discreteness
    file.attrs["converged"] = result.converged
    _write_column(file, free, "value", result.values, "the best value")
    _write_column(file, free, "sigma", result.sigma, "its standard deviation; NaN at the edge of its prior")
    low, high = result.interval()
    _write_column(file, free, "low", low, "16 % of the posterior lie below; of an upper limit the end of the prior")
    _write_column(file, free, "high", high, "16 % of the posterior lie above; of a lower limit the end of the prior")
    kinds, limits = np.full(len(free.labels), b"value", "S11"), np.full(len(free.labels), np.nan)
    for label, reach in result.limits().items():
        number = free.labels.index(label)
        kinds[number] = {"<": b"upper limit", ">": b"lower limit"}.get(reach.sign, b"interval")
        limits[number] = {"<": reach.high, ">": reach.low}.get(reach.sign, np.nan)
    kind = "value (with sigma), or at the edge of the prior interval (low to high), upper limit or lower limit"
    _write_column(file, free, "kind", free.split(kinds), kind, pure=True)
    limit = f"the limit with probability {LIMIT}; NaN where it is none"
    _write_column(file, free, "limit", free.split(limits), limit)
    if grain is not None:
        _write_column(file, free, "discreteness", free.split(grain.values), "its shift by many more draws")
        _write_column(file, free, "data_sigma", free.split(grain.value_sigma), "sigma without that shift")
    _write_texts(file["starts"], "reasons", result.starts.reasons(), "why each start ended, in words")
    for place, tree in (("model_parameters", result.parameters), ("galaxy", result.galaxy)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            file.require_group(place)[name] = np.asarray(leaf)
    for name, declared in declarations_of(file["model_parameters"]).items():
        file["model_parameters"][name].attrs.update({"unit": declared.unit, "description": declared.meaning})


def _read_fit(file: Any) -> FitResult:
    free = _read_free(file, "value")
    parameters, galaxy = (
        {name: jnp.asarray(data[()]) for name, data in file.get(place, {}).items()}
        for place in ("model_parameters", "galaxy")
    )
    result = FitResult(
        values=_read_column(file, free, "value", finite=True),
        sigma=_read_column(file, free, "sigma"),
        parameters=Parameters.of(parameters),
        galaxy=_galaxy_of(galaxy) if galaxy else None,
        **_read_shared(FitResult, file, free, ("residual",)),
    )
    result.starts.reasons()  # raises ValueError for an end that is not known
    edges, n_number = result.edges, len(free.labels)
    if not ((edges.index >= 0) & (edges.index < n_number)).all():
        raise ValueError(f"edges/index: expected places among {n_number} labels, got {edges.index.tolist()}")
    if not (np.isfinite(edges.latent).all() and np.isfinite(edges.density).all()):
        raise ValueError("edges: expected finite latents and densities, got others")
    return result


def _galaxy_of(leaves: dict[str, Any]) -> Galaxy:
    stars, gas = (
        {name.removeprefix(kind): leaf for name, leaf in leaves.items() if name.startswith(kind)}
        for kind in ("stars.", "gas.")
    )
    return Galaxy(stars=Stars(**stars), gas=Gas(**gas) if gas else None)


_OF_NUMBERS: Mapping[str, str] = {
    "r_hat": "spread of all draws over that within chains",
    "ess_bulk": "effective sample size for means",
    "ess_tail": "effective sample size for limits",
}


def _write_samples(result: SampleResult, file: Any) -> None:
    _write_shared(result, result.verdict.sentence, file)
    file.attrs.update({"n_chain": result.n_chain, "n_draw": result.n_draw})
    low, high = result.interval()
    for name, values, meaning in (
        ("draws", result.values, "the draws: chain, draw, ..."),
        ("best", result.best_values, "the best fit's value"),
        ("mean", result.mean, "mean of the draws"),
        ("sigma", result.sigma, "their standard deviation"),
        ("low", low, "16 % of the draws lie below"),
        ("median", result.quantile(0.5), "half of the draws lie below"),
        ("high", high, "16 % of the draws lie above"),
    ):
        _write_column(file, result.free, name, values, meaning)
    for name, meaning in _OF_NUMBERS.items():
        numbers = result.by_name(getattr(result.diagnostics, name))
        _write_column(file, result.free, name, numbers, meaning, pure=True)
    add_dataset(file, "e_bfmi", result.diagnostics.e_bfmi, "of each chain")
    for name, known in {"loss": LOSS, **find_sampler(result.method).statistics}.items():
        if name in result.statistics:
            file["statistics"][name].attrs["description"] = known.meaning
    if result.checks:
        of_checks = "probability that replicated data are further from the model"
        names = "names of the posterior-predictive checks"
        _write_shares(file.create_group("checks"), ("names", "p"), result.checks, names, of_checks)
    link_groups(result, file)


def _read_samples(file: Any) -> SampleResult:
    free, method = _read_free(file, "best"), str(file.attrs["method"])
    if removed := refusal("fit.sampling.method", method):
        raise ValueError(f"its sampler is one that only rubix_like 0.2.0 reads: {removed}")
    if method not in SAMPLERS:
        raise ValueError(f"its attribute 'method' is {method!r}, expected one of {', '.join(SAMPLERS.names())}")
    latent = numbers_of(file["latent/draws"], finite=True)
    numbers = {name: free.join(_read_column(file, free, name)) for name in _OF_NUMBERS}
    return SampleResult(
        values=_read_column(file, free, "draws", latent.shape[:-1], finite=True),
        diagnostics=Convergence(**numbers, e_bfmi=numbers_of(file["e_bfmi"], (len(file["e_bfmi"]),))),
        checks=_read_shares(file["checks"], "names", "p") if "checks" in file else {},
        **_read_shared(SampleResult, file, free, ("model", "predictive", "residual")),
    )


@dataclass(frozen=True)
class ResultKind:
    """A kind of file.

    `format`, `layout`: attributes by which it is known (the second is to be raised when what is in it changes);
    `description`: the attribute that says what it holds; of errors, `name`: what it is called, `writers`: what makes
    such a file, `place`: which setting says where. `fill` writes a result into an open file, `parse` reads it.
    """

    format: str
    layout: int
    description: str
    name: str
    writers: str
    place: str
    fill: Callable[[Any, Any], None]
    parse: Callable[[Any], Any]

    def write(self, result: Any, path: Path, *, overwrite: bool = False) -> Path:
        """Write a result, whole or not at all; raises ConfigError for a name of another suffix and (without
        `overwrite`) where there is a file of another kind, OSError with the remedy where it cannot be written."""
        path = path.expanduser()
        if path.suffix.lower() not in {".h5", ".hdf5"}:
            raise ConfigError(f"path: expected a path that ends in .h5 or .hdf5, got '{path}'")
        check_outputs([path], [self.format], overwrite=overwrite)
        known = {name: getattr(self, name) for name in ("format", "layout", "description")}
        known["configuration"] = result.model.meta.get("configuration") or ""
        with replacing(path) as temporary, writing_hdf5(temporary) as file:
            file.attrs.update({**known, "creator": CREATOR, "date": date_words()})
            self.fill(result, file)
            name_axes(file)
        return path

    def read(self, path: Path) -> Any:
        """The result in a file; FileNotFoundError, or ValueError if it is no complete file of this kind.

        float64 needs 64-bit numbers switched on in JAX, else arrays of JAX are float32.
        """
        path = path.expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"no such result: {path}; check the path ({self.place})")
        try:
            with opened_hdf5(path) as file:
                form, layout = file.attrs.get("format"), file.attrs.get("layout")
                if form != self.format:
                    raise ValueError(f"its attribute 'format' is {form!r}, not {self.format!r}")
                if layout != self.layout:
                    raise ValueError(
                        f"its layout is {layout}, that of another version; this one reads layout {self.layout}: "
                        f"run it again"
                    )
                return self.parse(file)
        except UNREADABLE as error:
            raise ValueError(
                f"{path} is not a complete {self.name} ({reason_of(error)}); expected an HDF5 file written by "
                f"{self.writers}; open others with h5py"
            ) from error


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
