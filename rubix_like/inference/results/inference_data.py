"""Samples by ArviZ's names: as its InferenceData, and as groups of their file."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.inference.described_trees import add_dataset
from rubix_like.inference.posterior.fit_model import STARS, FreeParameter
from rubix_like.inference.results.results import SampleResult
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.runtime.optional_packages import import_optional

_NAMES: Mapping[str, str] = {"n_leapfrog": "n_steps"}
"""Our name of a statistic -> ArviZ's, where it is another."""


def parameter_axes(parameter: FreeParameter) -> list[str]:
    """Names of the axes of a parameter's values; all arrays of stars have the same."""
    n_axis = len(parameter.shape)
    if parameter.name.startswith(STARS):
        return ["star", "axis"][:n_axis]
    return [f"{parameter.name}_axis_{number}" for number in range(n_axis)]


def link_groups(result: SampleResult, file: Any) -> None:
    """Give a file of samples the groups `posterior` and `sample_stats`: links to the draws, and ln(posterior)."""
    for name, group in file["parameters"].items():
        file[f"posterior/{name}"] = group["draws"]
    for name, statistic in file["statistics"].items():
        if name != "loss":
            file[f"sample_stats/{_NAMES.get(name, name)}"] = statistic
    meaning = "ln(posterior) of the latents, up to a constant"
    add_dataset(file.require_group("sample_stats"), "lp", -result.statistics["loss"], meaning, "", ("chain", "draw"))


def inference_data(result: SampleResult) -> Any:
    """`arviz.InferenceData` with the groups `posterior` (values, in the units of their attributes), `sample_stats`
    (`lp` is ln(posterior) up to a constant), `observed_data` (NaN where not fitted), `constant_data`, and
    `log_likelihood` of the points that were fitted at some of the draws, where the result has it.

    Of several sets of data the arrays of each have its name in front (`NAME.flux`), but for `log_likelihood`: of all
    points together, which have the coordinate `data_set`.

    Raises ConfigError where ArviZ is missing.
    """
    arviz = import_optional("arviz", "to_arviz")
    sets = [
        _Set(name, found.residual, found.predictive, found.pointwise, np.asarray(found.residual.mask) == 0)
        for name, found in (result.sets or {"": result}).items()
        if found.predictive is not None
    ]
    observed, constant, dims = dict[str, ndarray](), dict[str, ndarray](), dict[str, list[str]]()
    for name, residual, predictive, _, used in sets:
        before = f"{name}." if name else ""
        flux = np.asarray(residual.flux) + np.asarray(predictive.flux)
        observed[f"{before}flux"] = np.where(used, flux, np.nan)
        arrays = {
            "sigma": np.where(used, np.sqrt(np.asarray(residual.variance)), np.nan),
            "predictive": np.asarray(predictive.flux),
            "predictive_sigma": np.sqrt(np.asarray(predictive.variance)),
            "wavelength": np.asarray(residual.wavelength),
        }
        constant |= {f"{before}{array}": values for array, values in arrays.items()}
        voxels = [f"{before}{axis}" for axis in ("y", "x", "wave")]
        dims |= {f"{before}{array}": voxels for array in ("flux", *arrays)} | {f"{before}wavelength": voxels[2:]}
    for parameter in result.free.parameters:
        dims[parameter.name] = parameter_axes(parameter)
    statistics = {
        _NAMES.get(name, name): np.asarray(values) for name, values in result.statistics.items() if name != "loss"
    }
    statistics["lp"] = -np.asarray(result.statistics["loss"])
    if result.step_size is not None:
        statistics["step_size"] = np.repeat(result.step_size[:, None], result.n_draw, axis=1)
    data = arviz.from_dict(
        posterior=dict(result.values),
        sample_stats=statistics,
        observed_data=observed,
        constant_data=constant,
        dims=dims,
        attrs={"method": result.method, "config": result.config, "notes": "\n".join(result.notes)},
    )
    for parameter in result.free.parameters:
        data.posterior[parameter.name].attrs["units"] = parameter.unit
    if all(data_set.pointwise is not None for data_set in sets):
        data.add_groups({"log_likelihood": _log_likelihood(sets)})
    return data


class _Set(NamedTuple):
    """The cubes of one of several sets of data, or of the only one, which has no name, and which voxels were fitted."""

    name: str
    residual: Cube
    predictive: Cube
    pointwise: Pointwise | None
    used: Bool[ndarray, "y x wave"]


def _log_likelihood(sets: Sequence[_Set]) -> Any:
    """ln(likelihood) of the points that were fitted, a dataset with the coordinates of each."""
    xarray = import_optional("xarray", "to_arviz")
    known = [(data_set, data_set.pointwise) for data_set in sets if data_set.pointwise is not None]
    draws, of_voxels = known[0][1].draws, any(pointwise.of_voxels for _, pointwise in known)
    point, axes = ("voxel", ("y", "x", "wave")) if of_voxels else ("spaxel", ("y", "x"))
    places = [np.nonzero(data_set.used if of_voxels else data_set.used.any(axis=2, keepdims=True)) for data_set in sets]
    chosen = [
        pointwise.values[(slice(None), slice(None), *place)]
        for (_, pointwise), place in zip(known, places, strict=True)
    ]
    coordinates = {
        axis: (point, np.concatenate([place[number] for place in places])) for number, axis in enumerate(axes)
    }
    if known[0][0].name:
        names = np.repeat([data_set.name for data_set in sets], [len(place[0]) for place in places])
        coordinates["data_set"] = (point, names)
    values = np.concatenate(chosen, axis=2)
    chains = {"chain": np.arange(len(values)), "draw": draws}
    return xarray.Dataset({"flux": (("chain", "draw", point), values)}, coords=chains | coordinates)
