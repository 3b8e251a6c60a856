"""Settings of `fit_populations`."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy import ndarray
from pydantic import Field, ValidationError

from rubix_like.config.messages import explain
from rubix_like.config.quantities import Integer, Number
from rubix_like.config.sections.instrument import LSFSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError

Windows = tuple[tuple[Number, Number], ...]


class PopulationSettings(AbstractSettings):
    """What `fit_populations` takes beside data and library."""

    redshift: Annotated[Number, Field(ge=0)] | None = None
    """Of the galaxy; V is relative to it, ln(1 + v / c). Null: that of the result of a fit."""
    distance: Annotated[Number, Field(gt=0)] | None = None
    """Luminosity distance in Mpc; null: of the redshift (Planck18)."""
    lsf: LSFSettings | None = None
    """Line spread of the data, as `instrument.lsf`; null: as fine as the library."""
    regularisation: Annotated[Number, Field(gt=0)] | None = None
    """Strength of a smoothness prior, as a free-form component's `smoothness`; null: the prior on ratios."""
    log_ages: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    """log10(age / yr) of the nodes; null: at most 24 of the library, evenly spaced, up to the age of the Universe."""
    metallicities: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    """Metal mass fractions of the nodes; null: those of the library."""
    windows: Annotated[Windows, Field(min_length=1)] | None = None
    """Wavelengths (Angstrom, in the cube's medium) that are fitted; null: all."""
    exclude: Windows = ()
    """Wavelengths that are left out."""
    draws: Annotated[Integer, Field(ge=10)] = 400
    """Draws for each bin."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Seed of the draws."""


def read_settings(given: Mapping[str, Any]) -> PopulationSettings:
    """The settings of a call; raises ConfigError for unknown names and values that cannot be."""
    plain = {name: own.tolist() if isinstance(own, ndarray | np.generic) else own for name, own in given.items()}
    try:
        return PopulationSettings.model_validate(plain)
    except ValidationError as error:
        raise ConfigError(explain(error, PopulationSettings, "fit_populations")) from error
