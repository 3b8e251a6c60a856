"""Draw ages and metallicities from a stated history and gradient for stars without them."""

import importlib
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.readers.snapshot import AgeRecipe
from rubix_like.galaxy.limits import require
from rubix_like.physics.numbered_random import uniform_by_row
from rubix_like.physics.units import universe_age_in_yr


def _special() -> Any:
    """scipy.special, whose import is slow: only where ages or metallicities are drawn."""
    return importlib.import_module("scipy.special")


@named_arguments
def draw_log_ages(
    recipe: AgeRecipe, row: Float[ndarray, " particle"], universe_age: float | None = None
) -> Float[ndarray, " particle"]:
    """log10(age / yr) of the stars in these rows of the file (whole numbers from 0); `universe_age` (yr, or a quantity)
    as in `AgeRecipe.span`."""
    row = np.asarray(row)
    whole = (row >= 0) & (row == np.floor(row))
    require(whole, row, "row", "numbers of rows, whole and from 0", "the recipe draws one age for each row of the file")
    oldest, youngest = recipe.span(universe_age_in_yr(universe_age, "universe_age"))
    share = uniform_by_row(row, recipe.seed)[:, 0]
    since = elapsed(recipe.history, share, oldest - youngest, recipe.in_gyr("timescale"))
    return np.log10(np.maximum((oldest - since) * 1e9, 1.0))


def draw_metallicities(
    recipe: AgeRecipe, row: Float[ndarray, " particle"], radius: Float[ndarray, " particle"]
) -> Float[ndarray, " particle"]:
    """Metal mass fractions of the stars in these rows at `radius` (kpc) from the galaxy's centre."""
    normal = _special().ndtri(uniform_by_row(row, recipe.seed)[:, 1])
    logarithm = np.log10(recipe.metallicity) + recipe.metallicity_gradient * radius + recipe.scatter * normal
    require(
        logarithm <= 0,
        10**logarithm,
        "galaxy.ages.metallicity_gradient",
        "metal mass fractions of at most 1",
        "choose a lower gradient (dex/kpc), scatter or metallicity",
    )
    return 10**logarithm


def elapsed(
    history: str, share: Float[ndarray, " particle"], duration: float, timescale: float
) -> Float[ndarray, " particle"]:
    """Time s since star formation began by which `share` of the stars were formed, of a history that lasts `duration`.

    The inverse of the integral of its rate: 1, exp(-s / timescale) or s exp(-s / timescale); 0 for a burst. All times
    in one unit.
    """
    if history == "burst":
        return np.zeros_like(share)
    if history == "constant":
        return share * duration
    if history == "exponential":
        return -timescale * np.log1p(share * np.expm1(-duration / timescale))
    return np.minimum(
        timescale * _special().gammaincinv(2.0, share * _special().gammainc(2.0, duration / timescale)), duration
    )
