"""Convert samples to ArviZ's InferenceData."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.inference.posterior.fit_model import STARS
from rubix_like.inference.posterior.free import FreeParameter
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.samplers.predictive_checks import Pointwise
from rubix_like.runtime.optional_packages import import_optional

_NAMES: Mapping[str, str] = {"n_leapfrog": "n_steps"}
"""Our name of a statistic -> ArviZ's, where it is another."""


def inference_data(result: SampleResult) -> Any:
    """`arviz.InferenceData` with the groups `posterior` (values, in the units of their attributes), `sample_stats`
    (`lp` is ln(posterior) up to a constant), `observed_data` (NaN where not fitted), `constant_data`, and
    `log_likelihood` of the points that were fitted at some of the draws, where the result has it.

    Of several sets of data the arrays of each have its name in front (`NAME.flux`), but for `log_likelihood`: of all
    points together, which have the coordinate `data_set`.

    Raises ConfigError where ArviZ is missing.
    """
    arviz = import_optional("arviz", "to_arviz")
    sets = _sets_of(result)
    parts = [_arrays(data_set) for data_set in sets]
    data = arviz.from_dict(
        posterior=dict(result.values),
        sample_stats=_statistics(result),
        observed_data={name: array for observed, _, _ in parts for name, array in observed.items()},
        constant_data={name: array for _, constant, _ in parts for name, array in constant.items()},
        dims={name: dims for _, _, axes in parts for name, dims in axes.items()}
        | {parameter.name: _axes(parameter) for parameter in result.free.parameters},
        attrs={"method": result.method, "config": result.config, "notes": "\n".join(result.notes)},
    )
    for parameter in result.free.parameters:
        data.posterior[parameter.name].attrs["units"] = parameter.unit
    if all(data_set.pointwise is not None for data_set in sets):
        data.add_groups({"log_likelihood": _log_likelihood(sets)})
    return data


@dataclass(frozen=True, eq=False)
class _Set:
    """The cubes of one of several sets of data, or of the only one, which has no name; `before`: that of its arrays."""

    name: str
    before: str
    residual: Cube
    predictive: Cube
    pointwise: Pointwise | None

    @property
    def used(self) -> Bool[ndarray, "y x wave"]:
        """Which voxels were fitted."""
        return np.asarray(self.residual.mask) == 0


def _sets_of(result: SampleResult) -> list[_Set]:
    """All sets of data."""
    if not result.sets:
        return [_Set("", "", result.residual, result.predictive, result.pointwise)]
    return [
        _Set(name, f"{name}.", result_of_set.residual, result_of_set.predictive, result_of_set.pointwise)
        for name, result_of_set in result.sets.items()
        if result_of_set.predictive is not None
    ]


def _arrays(data_set: _Set) -> tuple[dict[str, ndarray], dict[str, ndarray], dict[str, list[str]]]:
    """What was observed, what is constant, and the names of the axes of both, of a set."""
    residual, predictive, before = data_set.residual, data_set.predictive, data_set.before
    flux = np.where(data_set.used, np.asarray(residual.flux) + np.asarray(predictive.flux), np.nan)
    constant = {
        "sigma": np.where(data_set.used, np.sqrt(np.asarray(residual.variance)), np.nan),
        "predictive": np.asarray(predictive.flux),
        "predictive_sigma": np.sqrt(np.asarray(predictive.variance)),
        "wavelength": np.asarray(residual.wavelength),
    }
    voxels = [f"{before}{axis}" for axis in ("y", "x", "wave")]
    axes = dict.fromkeys(("flux", *constant), voxels) | {"wavelength": voxels[2:]}
    return (
        {f"{before}flux": flux},
        {f"{before}{name}": array for name, array in constant.items()},
        {f"{before}{name}": array for name, array in axes.items()},
    )


def _log_likelihood(sets: Sequence[_Set]) -> Any:
    """ln(likelihood) of the points that were fitted, a dataset with the coordinates of each."""
    xarray = import_optional("xarray", "to_arviz")
    known = [(own, own.pointwise) for own in sets if own.pointwise is not None]
    draws, of_voxels = known[0][1].draws, any(pointwise.of_voxels for _, pointwise in known)
    point, axes = ("voxel", ("y", "x", "wave")) if of_voxels else ("spaxel", ("y", "x"))
    places = [np.nonzero(own.used if of_voxels else own.used.any(axis=2, keepdims=True)) for own in sets]
    chosen = [own.values[(slice(None), slice(None), *place)] for (_, own), place in zip(known, places, strict=True)]
    coordinates = {axis: (point, np.concatenate([own[number] for own in places])) for number, axis in enumerate(axes)}
    if known[0][0].name:
        names = np.repeat([own.name for own in sets], [len(own[0]) for own in places])
        coordinates["data_set"] = (point, names)
    values = np.concatenate(chosen, axis=2)
    chains = {"chain": np.arange(len(values)), "draw": draws}
    return xarray.Dataset({"flux": (("chain", "draw", point), values)}, coords=chains | coordinates)


def _statistics(result: SampleResult) -> dict[str, ndarray]:
    """The statistics of each draw, under ArviZ's names."""
    statistics = {
        _NAMES.get(name, name): np.asarray(values) for name, values in result.statistics.items() if name != "loss"
    }
    statistics["lp"] = -np.asarray(result.statistics["loss"])
    if result.step_size is not None:
        statistics["step_size"] = np.repeat(result.step_size[:, None], result.n_draw, axis=1)
    return statistics


def _axes(parameter: FreeParameter) -> list[str]:
    """Names of a parameter's own axes: the same for all arrays of stars."""
    if parameter.name.startswith(STARS):
        return ["star", "axis"][: len(parameter.shape)]
    return [f"{parameter.name}_axis_{number}" for number in range(len(parameter.shape))]
