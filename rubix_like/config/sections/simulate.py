"""Settings of a training set: what is random, how many cubes, and where they go."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool, field_validator

from rubix_like.config.quantities import Integer
from rubix_like.config.sections.fit import PriorsByName, checked_priors
from rubix_like.config.settings import AbstractSettings


class SimulateSettings(AbstractSettings):
    """The section `simulate`: cubes of random parameters, for the training of networks."""

    free: PriorsByName | None = None
    """Dotted name of a parameter -> its prior, as in `fit.free`; parameters of the noise may be among them. null: those
    of `fit.free`."""
    n: Annotated[Integer, Field(ge=1)] = 1000
    """How many cubes."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """Seed of parameters, particles and noise. Those of cube i depend on the seed and on i alone."""
    galaxies: Annotated[tuple[Path, ...], Field(min_length=1)] | None = None
    """Files of galaxies that are observed in turn, each in place of `galaxy.path`; null: the galaxy of the section
    `galaxy`."""
    particles: Literal["new", "same"] = "new"
    """Of a synthetic galaxy: other random numbers for the particles of every cube, or the same for all, as in a fit."""
    variance: StrictBool = True
    """Whether the variance of the noise is kept."""
    batch: Annotated[Integer, Field(ge=1)] | None = None
    """Cubes that one call of the compiled program makes; null: as many as take 128 MB. It changes no number."""
    at_once: Annotated[Integer, Field(ge=1)] = 1
    """Cubes that a device computes at the same time; more take more memory, and may be faster on GPUs."""
    shard: Annotated[Integer, Field(ge=1)] | None = None
    """Cubes in a file; null: as many as take 256 MB."""
    files: Literal["hdf5", "zarr"] = "hdf5"
    """Format of the files: HDF5; Zarr stores, which xarray opens."""
    output: Path = Path("simulations")
    """Folder of the files."""

    @field_validator("free", mode="before")
    @classmethod
    def _check_free(cls, value: object) -> PriorsByName | None:
        return None if value is None else checked_priors(value)
