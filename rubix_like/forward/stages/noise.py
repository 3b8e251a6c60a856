"""Stage `noise`: what the run's noise section asks for, and its variance."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jaxtyping import PRNGKeyArray

from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_options
from rubix_like.forward.stages.exposure_noise import ExposureNoise
from rubix_like.forward.stages.noise_models import AbstractNoise, TargetNoise


class Noise(AbstractCubeStage):
    """Adds noise of a target signal to noise or of an exposure; identity, without a variance, for `noise: null`.

    With one key, flux = f(p) + sigma(p) e. Derivatives in galaxy and parameters p hold the standard normal e of every
    voxel: those of a target's and of read-out noise are the limits of finite differences. Photon numbers N jump
    by electrons as p changes: held is (N - n(p)) / sqrt(n(p)) instead, with the expected number n (`poisson_noise`).
    The variance has its derivatives, too. `jax.lax.stop_gradient` of both keeps noise constant.
    """

    model: AbstractNoise | None
    keep_truth: bool = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Noise":
        """The model of the run's noise section; no options."""
        refuse_options("noise", options)
        settings = setup.config.noise
        if settings is None:
            return cls(model=None, keep_truth=False)
        keep_truth = setup.config.keeps_truth
        if settings.exposure is None:
            return cls(model=TargetNoise.build(setup, settings), keep_truth=keep_truth)
        instrument = setup.instrument
        model = ExposureNoise.build(settings.exposure, setup.config.instrument, instrument.bins, instrument.fibres)
        return cls(model=model, keep_truth=keep_truth)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:
        """The cube with noise and variance, and its noiseless flux where that is kept."""
        if self.model is None:
            return cube
        if key is None:
            raise ConfigError("noise: expected a random key, got none; set noise.seed or pass key=jax.random.key(...)")
        noise, variance = self.model.draw(cube, parameters, key)
        truth = cube.flux if self.keep_truth and cube.truth is None else cube.truth
        return dataclasses.replace(cube, flux=cube.flux + noise, variance=variance, truth=truth)

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """None: noise is not a linear map."""
        return

    def report(self) -> StageReport:
        """An empty report."""
        return StageReport()
