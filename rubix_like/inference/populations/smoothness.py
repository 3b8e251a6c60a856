"""The smoothness prior on weights over age and metallicity: second differences of the light per dex."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

PROPER: float = 1e-3
"""Share of the weights' own squares in the penalty, which makes the prior a proper one."""


def smoothness_rows(
    log_metallicity: Float[ndarray, " metal"],
    log_age: Float[ndarray, " age"],
    light: Float[ndarray, " weight"],
) -> Float[ndarray, "row weight"]:
    """S of the prior exp(-strength |S w|^2 / 2), w the weights by mass, metallicity first and age fastest.

    Rows are second differences of the light per dex along both axes (first ones where an axis has two nodes), as the
    regularisation of pPXF (Cappellari 2017, MNRAS 466, 798, sect. 3.5) has for templates that are normalised each, and
    sqrt(`PROPER`) times every weight's light, without which a plane of weights of any size would be as good as none.
    `light`: of each template per mass, of which only ratios matter. A prior on masses themselves would be far too wide
    for young stars and too narrow for old ones, whose mass-to-light ratios differ by hundreds.
    """
    n_metal, n_age = len(log_metallicity), len(log_age)
    density = np.diag(light_density(log_metallicity, log_age, light))
    along_age = np.kron(np.eye(n_metal), _differences(n_age))
    along_metal = np.kron(_differences(n_metal), np.eye(n_age))
    return np.concatenate([along_age, along_metal, np.sqrt(PROPER) * np.eye(n_metal * n_age)]) @ density


def light_density(
    log_metallicity: Float[ndarray, " metal"], log_age: Float[ndarray, " age"], light: Float[ndarray, " weight"]
) -> Float[ndarray, " weight"]:
    """Light per dex of age and metallicity of a unit of each weight, over the means of light and of cells."""
    share = np.outer(_widths(log_metallicity), _widths(log_age))
    return light / light.mean() / share.reshape(-1)


def _differences(number: int) -> Float[ndarray, "row node"]:
    """Second differences of neighbouring nodes; first ones of two, none of one."""
    return np.diff(np.eye(number), n=min(2, number - 1), axis=0) if number > 1 else np.zeros((0, 1))


def _widths(nodes: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The part of the axis that belongs to each node, over the mean of all."""
    if len(nodes) == 1:
        return np.ones(1)
    widths = np.gradient(nodes)
    return widths / widths.mean()
