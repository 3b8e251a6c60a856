"""Ages and metallicities of stars: from the file (birth or age), and for the others from a stated recipe."""

import importlib
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.readers.snapshot import AgeRecipe
from rubix_like.galaxy.limits import require
from rubix_like.physics.numbered_random import uniform_by_row
from rubix_like.physics.units import universe_age_in_yr
from rubix_like.readers.derived_columns import BIRTHS, SOURCES, age_source, log_ages
from rubix_like.readers.fields.field_map import Table
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.galaxy_frame import GalaxyFrame
from rubix_like.runtime.notes import WARNING, Note


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


_RECIPE = "set galaxy.ages: recipe to draw what is missing (docs/recipes.md)"


class Origins(NamedTuple):
    """Origins of the ages and metallicities of stars ("file" or a few words), and notes on them."""

    ages: str = "file"
    metallicities: str = "file"
    notes: tuple[str, ...] = ()


def ages_and_metallicities(
    snapshot: Snapshot, table: Table, frame: GalaxyFrame, recipe: AgeRecipe | None
) -> tuple[Table, Origins]:
    """Columns `log_age` and `metallicity` of all stars, and where they come from: the file or, for those without, the
    recipe, by their rows in the file.

    Raises ValueError where some have none and there is no recipe, and for what the file has wrong.
    """
    unknown = np.full(len(table["mass"]), np.nan)
    log_age = log_ages(snapshot, table)
    log_age = unknown if log_age is None else log_age
    metallicity = table.get("metallicity", unknown)
    ageless, metalless = np.isnan(log_age), np.isnan(metallicity)
    columns = {"log_age": log_age.copy(), "metallicity": metallicity.copy()}
    if recipe is None:
        _require_none(snapshot, ageless, _age_name(snapshot))
        _require_none(snapshot, metalless, "metallicity")
        return columns, Origins()
    if ageless.any() or metalless.any():
        row, radius = table["row"], np.linalg.norm(frame.offset(table["position"]), axis=1)
        columns["log_age"][ageless] = draw_log_ages(recipe, row[ageless], snapshot.epoch.universe_age)
        columns["metallicity"][metalless] = draw_metallicities(recipe, row[metalless], radius[metalless])
    return columns, drawn_origins(snapshot, recipe, int(ageless.sum()), int(metalless.sum()), ageless.size)


def drawn_origins(snapshot: Snapshot, recipe: AgeRecipe, n_ageless: int, n_metalless: int, n_stars: int) -> Origins:
    """The origins of what the recipe draws: the ages of `n_ageless` and metallicities of `n_metalless` of the stars."""
    if not (n_ageless or n_metalless):
        text = "galaxy.ages has no effect: the file has ages and metallicities of all stars"
        return Origins(notes=(Note("settings.without_effect", text, WARNING),))
    limit = snapshot.epoch.universe_age
    ages = f"{recipe.describe_ages(limit)}; {n_ageless} of {n_stars} stars" if n_ageless else "file"
    drawn = f"{recipe.describe_metallicities()}; {n_metalless} of {n_stars} stars"
    metallicities = drawn if n_metalless else "file"
    texts = (("ages", ages), ("metallicities", metallicities))
    notes = tuple(
        Note("galaxy.drawn_ages", f"{what} of stars without them in the file are drawn: {text}")
        for what, text in texts
        if text != "file"
    )
    return Origins(ages, metallicities, notes)


def check_ages(snapshot: Snapshot) -> None:
    """Raise ValueError for a file of which no star has an age, or none a metallicity."""
    known = snapshot.available("stars")
    if age_source(known) is None:
        raise ValueError(snapshot.missing("stars", _age_name(snapshot), _RECIPE))
    if "metallicity" not in known:
        raise ValueError(snapshot.missing("stars", "metallicity", _RECIPE))


def _require_none(snapshot: Snapshot, lacking: ndarray, quantity: str) -> None:
    if not lacking.any():
        return
    groups = snapshot.groups("stars")
    if quantity in BIRTHS and all(quantity in snapshot.quantities("stars", group) for group in groups):
        place = snapshot.field_name("stars", quantity, " and ".join(groups))
        raise ValueError(
            f"{snapshot.container.name}: {place}: {lacking.sum()} of {lacking.size} births are negative, which marks "
            f"stars of the initial conditions or winds; {_RECIPE}, or leave these particles out of the file"
        )
    raise ValueError(snapshot.missing("stars", quantity, _RECIPE))


def _age_name(snapshot: Snapshot) -> str:
    """The quantity that ages of this file come from, or could come from."""
    known = (*snapshot.available("stars"), *snapshot.field_map.stars.fields)
    return next((name for name in known if name in SOURCES), "age")
