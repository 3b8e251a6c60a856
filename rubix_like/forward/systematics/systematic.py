"""Systematic errors: the classes of their stages, which spectra have one error, and the record of what each adds."""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.config.sections.noise import SystematicsSettings
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractSpectraStage, PaintedCube, refuse_options

Spectra = Float[Array, "element wave"]


@dataclasses.dataclass(frozen=True)
class ErrorRecord:
    """Whether the flux before all errors and noise is kept, and what each error adds to it; `seed`: of the errors."""

    truth: bool
    contributions: bool
    seed: int


class AbstractSystematic(AbstractSpectraStage):
    """A stage of one systematic error, `name` in the section `systematics`."""

    name: ClassVar[str]
    key_number: ClassVar[int | None]
    record: eqx.AbstractVar[ErrorRecord]

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractSystematic":
        """The stage by `systematics.NAME`; no options. Raises ConfigError where the run or the instrument lacks what
        the error is made of."""
        refuse_options(cls.name, options)
        section = systematics_of(setup)
        record = ErrorRecord(setup.config.keeps_truth, section.keep_contributions, section.seed)
        return cls.of(setup, getattr(section, cls.name), record)

    @classmethod
    @abstractmethod
    def of(cls, setup: Setup, settings: Any, record: ErrorRecord) -> "AbstractSystematic":
        """The stage by its settings."""


class AbstractAddedChange(AbstractSystematic):
    """An error that is added to the flux."""

    @abstractmethod
    def change(self, cube: PaintedCube, key: PRNGKeyArray) -> Spectra:
        """The flux that is added."""

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the error."""
        return with_error(cube, self.name, self.change(cube, error_key(key, self.record)), self.record)


class AbstractRelativeChange(AbstractSystematic):
    """An error that multiplies the flux, with its noise, by 1 + `error`; what that adds to the flux without noise is
    the contribution."""

    @abstractmethod
    def error(self, key: PRNGKeyArray) -> Spectra:
        """The relative error."""

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the error."""
        error = self.error(error_key(key, self.record))
        change = None
        if self.record.contributions:
            change = error * sum(cube.contributions.values(), start=cube.flux if cube.truth is None else cube.truth)
        variance = None if cube.variance is None else cube.variance * (1 + error) ** 2
        recorded = _recorded(cube, self.name, change, self.record)
        return dataclasses.replace(recorded, flux=cube.flux + cube.flux * error, variance=variance)


def systematics_of(setup: Setup) -> SystematicsSettings:
    """The run's section; raises ConfigError where it is null."""
    settings = setup.config.systematics
    if settings is None:
        raise ConfigError("systematics: expected a section with the errors that the pipeline has, got null; give one")
    return settings


def error_key(key: PRNGKeyArray | None, record: ErrorRecord) -> PRNGKeyArray:
    """The key of one stage's errors; raises ConfigError without one."""
    if key is None:
        raise ConfigError(
            "systematics: expected a random key, got none; pass key=jax.random.key(...), or plan from a configuration"
        )
    return jax.random.fold_in(key, record.seed)


def with_error(cube: PaintedCube, name: str, change: Spectra, record: ErrorRecord) -> PaintedCube:
    """The cube with `change` added to its flux."""
    recorded = _recorded(cube, name, change, record)
    return dataclasses.replace(recorded, flux=cube.flux + change)


def _recorded(cube: PaintedCube, name: str, change: Spectra | None, record: ErrorRecord) -> PaintedCube:
    """The cube with the truth, where this is the first error, and the contribution of this one, as far as they are
    kept."""
    truth = cube.flux if record.truth and cube.truth is None else cube.truth
    if not record.contributions or change is None:
        return dataclasses.replace(cube, truth=truth)
    return dataclasses.replace(cube, truth=truth, contributions={**cube.contributions, name: change})


def flagged(cube: PaintedCube, where: Array, bit: int) -> PaintedCube:
    """The cube with a mask bit set in some voxels."""
    flags = jnp.where(where, jnp.int32(bit), jnp.int32(0))
    return dataclasses.replace(cube, bits=flags if cube.bits is None else cube.bits | flags)


def spectra_numbers(setup: Setup) -> Int[ndarray, " element"]:
    """A number for every spectrum: of fibres for each in each exposure."""
    fibres, footprint = setup.instrument.fibres, setup.instrument.footprint
    return np.arange(footprint.n_element if fibres is None else len(fibres), dtype=np.int32)


def place_numbers(setup: Setup) -> Int[ndarray, " element"]:
    """The number of the spaxel or fibre of every spectrum: the same in all exposures."""
    fibres = setup.instrument.fibres
    return spectra_numbers(setup) if fibres is None else (fibres.number - 1).astype(np.int32)


def exposure_numbers(setup: Setup) -> Int[ndarray, " element"]:
    """The number of the exposure of every spectrum: 0 for all spaxels."""
    fibres = setup.instrument.fibres
    return np.zeros_like(spectra_numbers(setup)) if fibres is None else (fibres.exposure - 1).astype(np.int32)


def exposures_added(setup: Setup) -> int:
    """How many exposures each spectrum is the mean of (`noise.exposure.count`)."""
    noise = setup.config.noise
    return 1 if noise is None or noise.exposure is None else noise.exposure.count
