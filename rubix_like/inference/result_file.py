"""The file of a fit's result: HDF5 that describes itself (docs/fit-file.md)."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import equinox as eqx
import h5py
import jax.numpy as jnp
import numpy as np
from numpy import ndarray

from rubix_like.atomic import replacing
from rubix_like.cube_parts import in_parts
from rubix_like.fits import ORIGIN
from rubix_like.galaxy import Galaxy, Gas, Stars
from rubix_like.hdf5_cube import read_group, write_group
from rubix_like.inference.free import Free, FreeParameter, read_prior
from rubix_like.inference.laplace import Laplace
from rubix_like.inference.priors import section_of
from rubix_like.inference.quality import Quality
from rubix_like.inference.result import FitResult
from rubix_like.inference.snapshot import Snapshot
from rubix_like.parameters import (
    DustParameters,
    InstrumentParameters,
    ObservationParameters,
    Parameters,
    PSFParameters,
)
from rubix_like.version import __version__

FORMAT: str = "rubix_like fit"
"""The attribute `format`, by which our files are known."""

LAYOUT: int = 1
"""The attribute `layout`: to be raised when a reader must know that a file is of another kind."""

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

_TEXT = h5py.string_dtype()


def write_result(result: FitResult, path: Path) -> Path:
    """Write a result, whole or not at all; raises OSError with the remedy where it cannot be written."""
    path = path.expanduser()
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w") as file:
                _write(result, file)
        except RuntimeError as error:  # from closing a file that could not be written, with the OSError as its context
            raise OSError(f"HDF5: {error}") from error
    return path


def is_result(path: Path) -> bool:
    """Whether a file is the result of a fit, whole or not."""
    if not (path.is_file() and h5py.is_hdf5(path)):
        return False
    with h5py.File(path, "r") as file:
        return bool(file.attrs.get("format") == FORMAT)


def read_result(path: Path) -> FitResult:
    """The result in a file made by `write_result`; float64 needs 64-bit numbers switched on in JAX, else float32.

    Raises FileNotFoundError, or ValueError if the file is no complete result.
    """
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such result: {path}; check the path (a fit writes to its fit.output)")
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT or file.attrs.get("layout") != LAYOUT:
                came = f"{file.attrs.get('format')!r}, layout {file.attrs.get('layout')}"
                raise ValueError(f"its attribute 'format' is {came}, not {FORMAT!r}, layout {LAYOUT}")
            return _read(file)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{path} is not a complete result of a fit ({error}); expected an HDF5 file written by FitResult.write or "
            f"`rubix-like fit`; open others with h5py"
        ) from error


def _write(result: FitResult, file: Any) -> None:
    quality = dataclasses.asdict(result.quality)
    file.attrs.update(
        {
            "format": FORMAT,
            "layout": LAYOUT,
            "creator": f"{ORIGIN} {__version__}",
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
            "description": "maximum of the posterior of a datacube, and its Gaussian approximation there",
            **quality,
            "degrees_of_freedom": result.quality.degrees_of_freedom,
            "reduced_chi_square": result.quality.reduced,
            "converged": result.converged,
        }
    )
    _write_values(result, file)
    _write_starts(result.starts, file.create_group("starts"))
    for name in ("model", "residual"):
        write_group(in_parts(getattr(result, name)), file.create_group(name))
    _write_tree(result.parameters, file.create_group("model_parameters"))
    if result.galaxy is not None:
        _write_tree(result.galaxy, file.create_group("galaxy"))
    file["config"] = result.config
    file.create_dataset("notes", data=list(result.notes), dtype=_TEXT, shape=(len(result.notes),))
    packages = file.create_group("versions", track_order=True)
    for package, version in result.versions.items():
        packages[package] = version


def _write_values(result: FitResult, file: Any) -> None:
    """The values one by one, and what they have in common."""
    low, high = result.interval()
    columns = {
        "value": (result.values, "the best value"),
        "sigma": (result.sigma, "its standard deviation"),
        "low": (low, "16 % of the posterior lie below"),
        "high": (high, "16 % of the posterior lie above"),
    }
    parameters = file.create_group("parameters", track_order=True)
    for own in result.free.parameters:
        group = parameters.create_group(own.name)
        group.attrs["unit"] = own.unit
        for column, (values, meaning) in columns.items():
            _describe(group.create_dataset(column, data=values[own.name]), own.unit, meaning)
        prior = group.create_dataset("prior", data=json.dumps(section_of(own.prior)), dtype=_TEXT)
        _describe(prior, "", "the prior as in the section fit.free, {kind: numbers in the unit}")
    labels = file.create_dataset("labels", data=list(result.labels), dtype=_TEXT)
    _describe(labels, "", "names of the free numbers, in the order of covariance and of the latents")
    latent = file.create_group("latent")
    _describe(
        latent.create_dataset("best", data=result.latent), "", "the best values as latents, whose priors are N(0, 1)"
    )
    if result.laplace is None:
        return
    data = file.create_dataset("covariance", data=result.covariance)
    _describe(data, "units of the labels", "covariance of the values")
    for name, meaning in (("covariance", "of the latents"), ("information", "Gauss-Newton matrix of the data alone")):
        _describe(latent.create_dataset(name, data=getattr(result.laplace, name)), "", meaning)


def _write_starts(starts: Snapshot, group: Any) -> None:
    for name, meaning in _STARTS.items():
        _describe(group.create_dataset(name, data=getattr(starts, name)), "", meaning)
    reasons = group.create_dataset("reasons", data=list(starts.reasons()), dtype=_TEXT)
    _describe(reasons, "", "why each start ended, in words")


def _describe(dataset: Any, unit: str, meaning: str) -> None:
    dataset.attrs.update({"unit": unit, "description": meaning})


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
    free = _read_free(file["parameters"])
    latent = file["latent"]
    laplace = None
    if "covariance" in latent:
        own = {name: latent[name][()] for name in ("information", "covariance")}
        laplace = Laplace(free=free, latent=latent["best"][()], **own)
    columns = {
        column: {name: group[column][()] for name, group in file["parameters"].items()} for column in ("value", "sigma")
    }
    arrays = {name: file["starts"][name][()] for name in _STARTS}
    return FitResult(
        free=free,
        values=_as_arrays(columns["value"]),
        sigma=_as_arrays(columns["sigma"]),
        covariance=file["covariance"][()] if "covariance" in file else None,
        latent=latent["best"][()],
        laplace=laplace,
        quality=Quality(**{field.name: file.attrs[field.name].item() for field in dataclasses.fields(Quality)}),
        starts=Snapshot(**arrays, slots=np.zeros(0, np.int64), state=()),
        model=read_group(file["model"]),
        residual=read_group(file["residual"]),
        parameters=_parameters_of({name: data[()] for name, data in file["model_parameters"].items()}),
        galaxy=_galaxy_of({name: data[()] for name, data in file["galaxy"].items()}) if "galaxy" in file else None,
        config=file["config"].asstr()[()],
        versions={package: data.asstr()[()] for package, data in file["versions"].items()},
        notes=tuple(file["notes"].asstr()[()]),
    )


def _as_arrays(values: Mapping[str, Any]) -> dict[str, ndarray]:
    """h5py gives scalars where there were arrays without axes."""
    return {name: np.asarray(value) for name, value in values.items()}


def _read_free(group: Any) -> Free:
    parameters = []
    for name, own in group.items():
        section, unit = json.loads(own["prior"].asstr()[()]), str(own.attrs["unit"])
        parameters.append(FreeParameter(read_prior(name, section, unit), name, own["value"].shape, unit))
    return Free(tuple(parameters))


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
