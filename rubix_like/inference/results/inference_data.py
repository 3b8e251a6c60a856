"""Convert samples to ArviZ's InferenceData."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

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

    Raises ConfigError where ArviZ is missing.
    """
    arviz = import_optional("arviz", "to_arviz")
    residual, predictive = result.residual, result.predictive
    used = np.asarray(residual.mask) == 0
    flux = np.where(used, np.asarray(residual.flux) + np.asarray(predictive.flux), np.nan)
    sigma = np.where(used, np.sqrt(np.asarray(residual.variance)), np.nan)
    voxels = ["y", "x", "wave"]
    cubes = {"flux": voxels, "sigma": voxels, "predictive": voxels, "predictive_sigma": voxels, "wavelength": ["wave"]}
    data = arviz.from_dict(
        posterior=dict(result.values),
        sample_stats=_statistics(result),
        observed_data={"flux": flux},
        constant_data={
            "sigma": sigma,
            "predictive": np.asarray(predictive.flux),
            "predictive_sigma": np.sqrt(np.asarray(predictive.variance)),
            "wavelength": np.asarray(residual.wavelength),
        },
        dims=cubes | {own.name: _axes(own) for own in result.free.parameters},
        attrs={"method": result.method, "config": result.config, "notes": "\n".join(result.notes)},
    )
    for own in result.free.parameters:
        data.posterior[own.name].attrs["units"] = own.unit
    if result.pointwise is not None:
        data.add_groups({"log_likelihood": _log_likelihood(result.pointwise, used)})
    return data


def _log_likelihood(pointwise: Pointwise, used: Bool[ndarray, "y x wave"]) -> Any:
    """ln(likelihood) of the points that were fitted, a dataset with the coordinates of each."""
    xarray = import_optional("xarray", "to_arviz")
    of_voxels = pointwise.of_voxels
    places = np.nonzero(used if of_voxels else used.any(axis=2, keepdims=True))
    point, axes = ("voxel", ("y", "x", "wave")) if of_voxels else ("spaxel", ("y", "x"))
    chosen = pointwise.values[(slice(None), slice(None), *places)]
    coordinates = {axis: (point, place) for axis, place in zip(axes, places, strict=False)}
    chains = {"chain": np.arange(len(chosen)), "draw": pointwise.draws}
    return xarray.Dataset({"flux": (("chain", "draw", point), chosen)}, coords=chains | coordinates)


def _statistics(result: SampleResult) -> dict[str, ndarray]:
    """The statistics of each draw, under ArviZ's names."""
    statistics = {_NAMES.get(name, name): np.asarray(own) for name, own in result.statistics.items() if name != "loss"}
    statistics["lp"] = -np.asarray(result.statistics["loss"])
    if result.step_size is not None:
        statistics["step_size"] = np.repeat(result.step_size[:, None], result.n_draw, axis=1)
    return statistics


def _axes(parameter: FreeParameter) -> list[str]:
    """Names of a parameter's own axes: the same for all arrays of stars."""
    if parameter.name.startswith(STARS):
        return ["star", "axis"][: len(parameter.shape)]
    return [f"{parameter.name}_axis_{number}" for number in range(len(parameter.shape))]
