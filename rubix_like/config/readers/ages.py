"""The recipe for ages and metallicities of stars without them: a formation history and a gradient."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from rubix_like.config.quantities import Dex, Gyr, Integer, InUnit, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import suggest
from rubix_like.galaxy.limits import LARGEST_LOG_AGE

OLDEST: float = 12.0
"""Gyr: when stars began to form where nothing else is said, unless the Universe is younger."""

_DEFAULTS: dict[str, dict[str, float]] = {
    "constant": {"youngest": 0.1},
    "exponential": {"youngest": 0.1, "timescale": 3.0},
    "delayed": {"youngest": 0.1, "timescale": 3.0},
    "burst": {},
}
"""History -> the keys beside `oldest` that describe it, and what they are where they are not given (Gyr)."""


class AgeRecipe(AbstractSettings):
    """The recipe for ages and metallicities of stars without them; the same file always gets the same ones.

    The history is the mass that is in stars now by the time of its birth: star formation that is constant from
    `oldest` to `youngest`, falls as exp(-s / timescale) or runs as s exp(-s / timescale), s being the time since
    `oldest`; or a burst, all stars `oldest` ago.
    """

    history: Literal["constant", "exponential", "delayed", "burst"] = "constant"
    """Formation history of the mass that is in stars now."""
    oldest: Annotated[Gyr, Field(gt=0, le=10 ** (LARGEST_LOG_AGE - 9))] | None = None
    """When star formation began, in Gyr before the snapshot; null: 12, or the Universe's age where that is less."""
    youngest: Annotated[Gyr, Field(ge=0)] | None = None
    """When it ended, in Gyr before the snapshot; null: 0.1. A burst has none."""
    timescale: Annotated[Gyr, Field(gt=0)] | None = None
    """Timescale of exponential and delayed, in Gyr; null: 3."""
    metallicity: Annotated[Number, Field(gt=0, le=0.1)] = 0.02
    """Median metal mass fraction at the galaxy's centre."""
    metallicity_gradient: Annotated[float, InUnit("dex / kpc")] = -0.03
    """Slope of the median log10 Z with the distance from the galaxy's centre, in dex/kpc."""
    scatter: Annotated[Dex, Field(ge=0)] = 0.1
    """Standard deviation of log10 Z (normal) about the median, in dex."""
    seed: Annotated[Integer, Field(ge=0, lt=2**64)] = 1
    """Another seed gives other stars."""

    @model_validator(mode="after")
    def _check_keys(self) -> "AgeRecipe":
        known = _DEFAULTS[self.history]
        alien = [key for key in ("youngest", "timescale") if getattr(self, key) is not None and key not in known]
        if alien:
            words = " and ".join(("oldest", *known))
            raise ValueError(f"the history {self.history} is described by {words}; got {', '.join(alien)}")
        if self.oldest is not None and self.oldest <= self.in_gyr("youngest"):
            raise ValueError(
                f"oldest: expected more than youngest ({self.in_gyr('youngest'):g} Gyr), got {self.oldest:g}"
            )
        return self

    def span(self, universe_age: float | None) -> tuple[float, float]:
        """(oldest, youngest) in Gyr; `universe_age` (yr) is the Universe's at the snapshot (None: no limit).

        Raises ValueError where stars would be older than the Universe.
        """
        limit = math.inf if universe_age is None else universe_age / 1e9
        oldest, youngest = self.oldest or min(OLDEST, limit), self.in_gyr("youngest")
        if oldest > limit:
            raise ValueError(
                f"galaxy.ages.oldest: expected at most {limit:.4g} Gyr, the Universe's age at the snapshot, got "
                f"{oldest:g} Gyr; choose less, or leave it out"
            )
        if oldest <= youngest:
            raise ValueError(
                f"galaxy.ages.youngest: expected less than {oldest:.4g} Gyr, the Universe's age at the snapshot, got "
                f"{youngest:g} Gyr"
            )
        return oldest, youngest

    def describe_ages(self, universe_age: float | None) -> str:
        """The ages in a few words, for headers."""
        oldest, youngest = self.span(universe_age)
        timescale = f", timescale {self.in_gyr('timescale'):g} Gyr" if "timescale" in _DEFAULTS[self.history] else ""
        span = f"{oldest:.4g}" if self.history == "burst" else f"{oldest:.4g}-{youngest:g}"
        return f"recipe: {self.history} {span} Gyr{timescale}, seed {self.seed}"

    def describe_metallicities(self) -> str:
        """The metallicities in a few words, for headers."""
        return f"recipe: {self.metallicity:g}, {self.metallicity_gradient:g} dex/kpc, scatter {self.scatter:g} dex"

    def in_gyr(self, key: str) -> float:
        """A key that depends on the history, in Gyr; 0 where the history has none."""
        given = {"youngest": self.youngest, "timescale": self.timescale}[key]
        return _DEFAULTS[self.history].get(key, 0.0) if given is None else given


def _parse(value: object) -> object:
    """The section behind `ages: recipe`, None behind `ages: file`."""
    words = {"file": None, "recipe": {}}
    if isinstance(value, str) and value in words:
        return words[value]
    if value is not None and not isinstance(value, Mapping | AgeRecipe):
        raise ValueError(f"expected file, recipe, or a section such as {{history: constant}}, got {value!r}")
    for key in value if isinstance(value, Mapping) else ():
        if key not in AgeRecipe.model_fields:
            raise ValueError(f"unknown key '{key}'{suggest(str(key), AgeRecipe.model_fields)}")
    return value


class _Words:
    """JSON schema: the words that stand for a section, too."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"enum": ["file", "recipe"]}, handler(schema)]}


Ages = Annotated[AgeRecipe | None, BeforeValidator(_parse), _Words()]
"""`file` (None), `recipe` (all defaults) or a section."""
