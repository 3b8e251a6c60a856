"""Settings of a posterior's samples: the sampler, how many draws, how they are spread over the devices."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rubix_like.config.quantities import Integer, Number
from rubix_like.config.settings import AbstractSettings


class NutsSettings(AbstractSettings):
    """The No-U-Turn sampler: chains that each adapt for themselves and then draw."""

    chains: Annotated[Integer, Field(ge=1)] = 4
    """Independent chains; four at least, to see whether they agree."""
    warmup: Annotated[Integer, Field(ge=20)] = 300
    """Steps of each chain by which it adapts, and which are thrown away."""
    draws: Annotated[Integer, Field(ge=1)] = 500
    """Steps of each chain that are kept."""
    target_acceptance: Annotated[Number, Field(gt=0.5, lt=1)] = 0.9
    """Mean acceptance that the size of steps is adapted to: higher makes smaller steps, where others diverge."""
    tree_depth: Annotated[Integer, Field(ge=1, le=15)] = 8
    """Most doublings of a trajectory: it has at most 2^this leapfrog steps, each a gradient of the model."""


class VariationalSettings(AbstractSettings):
    """Variational inference: samples about a mean, which is moved to where they resemble the posterior most."""

    samples: Annotated[Integer, Field(ge=2, multiple_of=2)] = 16
    """By how many samples the mean is found; every second one is the mirror image of the one before."""
    iterations: Annotated[Integer, Field(ge=1)] = 20
    """Most movements of the mean, each followed by samples about the new one."""
    tolerance: Annotated[Number, Field(gt=0)] = 0.05
    """The mean is found once it moves by less, in standard deviations of the samples."""
    draws: Annotated[Integer, Field(ge=2, multiple_of=2)] = 200
    """How many samples are drawn about the mean that is found; every second one is a mirror image."""


class SamplingSettings(AbstractSettings):
    """The section `fit.sampling`: how the posterior is sampled, and where the result goes."""

    method: Literal["nuts", "geovi", "mgvi"] = "nuts"
    """nuts: chains, exact in the limit of many draws; geovi, mgvi: variational, faster, approximate (geovi's samples
    follow the curvature of the model, mgvi's are normal)."""
    nuts: NutsSettings = NutsSettings()
    """Of method nuts."""
    variational: VariationalSettings = VariationalSettings()
    """Of methods geovi and mgvi."""
    groups: Annotated[Integer, Field(ge=1)] | None = None
    """Groups that the devices are shared out to, each with samples of its own, of which it computes one model at a time
    together; null: one for every sample, as far as there are devices."""
    at_once: Annotated[Integer, Field(ge=1)] = 1
    """Samples that a group computes at the same time; more may be faster on accelerators, and takes more memory."""
    predictive: Annotated[Integer, Field(ge=2)] = 128
    """Draws whose models make the posterior-predictive cube."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Of all random numbers of the sampler."""
    output: Path | None = None
    """The result's file; null: beside that of the fit, fit_samples.h5."""

    @field_validator("output")
    @classmethod
    def _check_suffix(cls, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in {".h5", ".hdf5"}:
            raise ValueError(f"expected a path that ends in .h5 or .hdf5, got '{value}'")
        return value
