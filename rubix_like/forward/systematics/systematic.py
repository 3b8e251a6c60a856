"""What stages of systematic errors share: which spectra have one error, their keys, and the record of what they add."""

import dataclasses
from typing import ClassVar

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
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport

Spectra = Float[Array, "element wave"]


@dataclasses.dataclass(frozen=True)
class ErrorRecord:
    """What is kept: the flux before all errors and noise, what each error adds to it; `seed`: that of the errors."""

    truth: bool
    contributions: bool
    seed: int

    @classmethod
    def of(cls, setup: Setup) -> "ErrorRecord":
        """As the run's section says."""
        settings = systematics_of(setup)
        return cls(setup.config.keeps_truth, settings.keep_contributions, settings.seed)


class AbstractSystematic(AbstractCubeStage):
    """A stage of one systematic error. It takes no light from beyond the field, and is no map of images."""

    key_number: ClassVar[int | None]
    record: eqx.AbstractVar[ErrorRecord]

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """None: it is different in every spectrum."""
        return

    def report(self) -> StageReport:
        """An empty report."""
        return StageReport()


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


def with_relative_error(cube: PaintedCube, name: str, error: Spectra, record: ErrorRecord) -> PaintedCube:
    """The cube times 1 + `error`, with its noise; what that adds to the flux without noise is the contribution."""
    change = None
    if record.contributions:
        change = error * sum(cube.contributions.values(), start=cube.flux if cube.truth is None else cube.truth)
    variance = cube.variance
    if variance is not None:
        variance = variance * (1 + error) ** 2
    recorded = _recorded(cube, name, change, record)
    return dataclasses.replace(recorded, flux=cube.flux + cube.flux * error, variance=variance)


def _recorded(cube: PaintedCube, name: str, change: Spectra | None, record: ErrorRecord) -> PaintedCube:
    """The cube with the truth, where this is the first error, and the contribution of this one, as far as they are
    kept."""
    truth = cube.flux if record.truth and cube.truth is None else cube.truth
    if not record.contributions or change is None:
        return dataclasses.replace(cube, truth=truth)
    return dataclasses.replace(cube, truth=truth, contributions={**cube.contributions, name: change})


def flagged(cube: PaintedCube, where: Array, bit: int) -> PaintedCube:
    """The cube with a mask bit set in some voxels."""
    own = jnp.where(where, jnp.int32(bit), jnp.int32(0))
    return dataclasses.replace(cube, bits=own if cube.bits is None else cube.bits | own)


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
