"""Draw ages and metallicities from a stated history and gradient for stars without them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema
from scipy.special import gammainc, gammaincinv, ndtri

from rubix_like.config.quantities import Dex, Gyr, Integer, InUnit, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import suggest
from rubix_like.galaxy.validation import LARGEST_LOG_AGE, require
from rubix_like.physics.numbered_random import uniform_by_row

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
        if self.oldest is not None and self.oldest <= self._value("youngest"):
            raise ValueError(
                f"oldest: expected more than youngest ({self._value('youngest'):g} Gyr), got {self.oldest:g}"
            )
        return self

    def span(self, universe_age: float | None) -> tuple[float, float]:
        """(oldest, youngest) in Gyr; `universe_age` (yr) is the Universe's at the snapshot (None: no limit).

        Raises ValueError where stars would be older than the Universe.
        """
        limit = np.inf if universe_age is None else universe_age / 1e9
        oldest, youngest = self.oldest or min(OLDEST, limit), self._value("youngest")
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

    def log_age(
        self, row: Float[ndarray, " particle"], universe_age: float | None = None
    ) -> Float[ndarray, " particle"]:
        """log10(age / yr) of the stars in these rows of the file."""
        oldest, youngest = self.span(universe_age)
        share = uniform_by_row(row, self.seed)[:, 0]
        since = elapsed(self.history, share, oldest - youngest, self._value("timescale"))
        return np.log10(np.maximum((oldest - since) * 1e9, 1.0))

    def metal_fraction(
        self, row: Float[ndarray, " particle"], radius: Float[ndarray, " particle"]
    ) -> Float[ndarray, " particle"]:
        """Metal mass fractions of the stars in these rows at `radius` (kpc) from the galaxy's centre."""
        normal = ndtri(uniform_by_row(row, self.seed)[:, 1])
        logarithm = np.log10(self.metallicity) + self.metallicity_gradient * radius + self.scatter * normal
        require(
            logarithm <= 0,
            10**logarithm,
            "galaxy.ages.metallicity_gradient",
            "metal mass fractions of at most 1",
            "choose a lower gradient (dex/kpc), scatter or metallicity",
        )
        return 10**logarithm

    def describe_ages(self, universe_age: float | None) -> str:
        """The ages in a few words, for headers."""
        oldest, youngest = self.span(universe_age)
        timescale = f", timescale {self._value('timescale'):g} Gyr" if "timescale" in _DEFAULTS[self.history] else ""
        span = f"{oldest:.4g}" if self.history == "burst" else f"{oldest:.4g}-{youngest:g}"
        return f"recipe: {self.history} {span} Gyr{timescale}, seed {self.seed}"

    def describe_metallicities(self) -> str:
        """The metallicities in a few words, for headers."""
        return f"recipe: {self.metallicity:g}, {self.metallicity_gradient:g} dex/kpc, scatter {self.scatter:g} dex"

    def _value(self, key: str) -> float:
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
    return np.minimum(timescale * gammaincinv(2.0, share * gammainc(2.0, duration / timescale)), duration)
