"""Settings of posteriors: how samples are drawn."""

from typing import Annotated, Literal

from pydantic import Field

from rubix_like.config.quantities import Integer, Number
from rubix_like.config.settings import AbstractSettings


class VariationalSettings(AbstractSettings):
    """Variational inference: samples about a mean, which is moved to where they resemble the posterior most."""

    method: Literal["geovi", "mgvi"] = "geovi"
    """Samples that follow the curvature of the model (geovi), or normal ones (mgvi)."""
    samples: Annotated[Integer, Field(ge=2, multiple_of=2)] = 16
    """By how many samples the mean is found; every second one is the mirror image of the one before."""
    iterations: Annotated[Integer, Field(ge=1)] = 20
    """Most movements of the mean, each followed by samples about the new one."""
    tolerance: Annotated[Number, Field(gt=0)] = 0.05
    """The mean is found once it moves by less, in standard deviations of the samples."""
    draws: Annotated[Integer, Field(ge=2, multiple_of=2)] = 200
    """How many samples are drawn about the mean that is found; every second one is a mirror image."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Of the samples."""
