"""Samplers by their settings: how one begins at the best fit, tells of itself, and what it hands over."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Shaped, UInt32
from numpy import ndarray

from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.errors import ConfigError
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.samplers.chains import Chains, run_chains
from rubix_like.inference.samplers.nifty_geometry import check_nifty
from rubix_like.inference.samplers.nuts import require_blackjax
from rubix_like.inference.samplers.variational import VariationalState, run_variational
from rubix_like.inference.samplers.whitening import Whitening

Method = Literal["nuts", "geovi", "mgvi"]


METHODS: Mapping[Method, str] = {"nuts": "NUTS", "geovi": "geoVI", "mgvi": "MGVI"}
"""Their names in sentences."""


Statistics = Mapping[str, Shaped[ndarray, "chain draw"]]
"""Name -> one number of every draw."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Draws of the latents from the posterior, or from an approximation of it; host arrays.

    | field | shape | |
    |---|---|---|
    | method | | "nuts", "geovi" or "mgvi" (variational inference: one chain, every second draw a mirror image) |
    | latent | (chain, draw, latent) | of which the priors are standard normal |
    | statistics | (chain, draw) by name | `loss`, -ln(posterior) + constant; of NUTS also `acceptance_rate`, |
    | | | `n_leapfrog`, `diverging` (bool), `tree_depth` and `energy` |
    | keys | (key, 2) | the random keys, one of each chain or pair of draws |
    | step_size | (chain,) or None | of NUTS's leapfrog steps, in standard deviations of the posterior |
    | notes | | sentences on what should be known of them |
    """

    method: Method
    latent: Float[ndarray, "chain draw latent"]
    statistics: Statistics
    keys: UInt32[ndarray, "key 2"]
    step_size: Float[ndarray, " chain"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_chain(self) -> int:
        """How many chains there are."""
        return self.latent.shape[0]

    @property
    def n_draw(self) -> int:
        """How many draws a chain has."""
        return self.latent.shape[1]

    @property
    def is_chain(self) -> bool:
        """Whether each draw depends on the one before."""
        return self.method == "nuts"


@dataclass(frozen=True)
class AbstractSampler(ABC):
    """A way to draw from a posterior."""

    settings: SamplingSettings

    @property
    @abstractmethod
    def n_sample(self) -> int:
        """How many chains, or samples, there are to be computed at the same time."""

    @abstractmethod
    def read(self, arrays: Mapping[str, ndarray]) -> Any:
        """What `run` had yielded, of its arrays: its `best` is the best fit that the sampler began at."""

    @abstractmethod
    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,
        begun: Any,
    ) -> Iterator[Any]:
        """From the best fit, or from a state that it had yielded, to the last draw.

        On a mesh with the axis "sample"; the same settings give the same draws on any.
        """

    @abstractmethod
    def told(self, state: Any) -> tuple[str, int, int]:
        """Where it is: in words, and how much is done of how much."""

    @abstractmethod
    def sampled(self, state: Any) -> Sampled:
        """What the last state holds."""


class NutsSampler(AbstractSampler):
    """Chains of the No-U-Turn sampler."""

    @property
    def n_sample(self) -> int:
        """The chains."""
        return self.settings.nuts.chains

    def read(self, arrays: Mapping[str, ndarray]) -> Chains:
        """Chains."""
        return Chains.from_arrays(arrays)

    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,
        begun: Chains | None,
    ) -> Iterator[Chains]:
        """In coordinates that are white in Laplace's approximation."""
        whitening = Whitening.about(best, laplace) if begun is None else begun.whitening
        return run_chains(posterior, mesh, self.settings, whitening, begun)

    def told(self, state: Chains) -> tuple[str, int, int]:
        """Warm-up or draws, with what matters of them."""
        stage = "warming up" if state.n_done < state.warmup else "drawing"
        first = state.warmup if state.n_done > state.warmup else 0
        made = {name: own[:, first : state.n_done] for name, own in state.steps.items()}
        words = f"{len(state.keys)} chains {stage}"
        if state.n_done:
            words += (
                f", acceptance {made['acceptance_rate'].mean():.2f}, {made['n_leapfrog'].mean():.1f} gradients a step"
            )
            words += f", {np.count_nonzero(state.draws['diverging'])} draws diverged"
        return f"{words}, step", state.n_done, state.n_step

    def sampled(self, state: Chains) -> Sampled:
        """The draws after the warm-up."""
        draws = state.draws
        statistics = {name: own for name, own in draws.items() if name != "latent"}
        return Sampled("nuts", draws["latent"], statistics, state.keys, state.step_size)


class VariationalSampler(AbstractSampler):
    """geoVI and MGVI."""

    @property
    def n_sample(self) -> int:
        """The samples by which the mean is found."""
        return self.settings.variational.samples

    def read(self, arrays: Mapping[str, ndarray]) -> VariationalState:
        """Their state."""
        return VariationalState.from_arrays(arrays)

    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,  # noqa: ARG002 (its metric is that of every mean)
        begun: VariationalState | None,
    ) -> Iterator[VariationalState]:
        """From the best fit to the mean, then the draws."""
        return run_variational(posterior, mesh, self.settings, best if begun is None else begun.best, begun)

    def told(self, state: VariationalState) -> tuple[str, int, int]:
        """The mean's last movement, then the draws."""
        if not state.n_done and not state.converged:
            moved = f", moved by {state.shift[-1]:.2g} sigma" if len(state.shift) else ""
            return f"looking for the mean{moved}, iteration", state.n_iteration, self.settings.variational.iterations
        return "draws", state.n_done, int(state.n_draw)

    def sampled(self, state: VariationalState) -> Sampled:
        """The draws as one chain."""
        method = "geovi" if self.settings.method == "geovi" else "mgvi"
        return Sampled(method, state.latent[None], {"loss": state.loss[None]}, state.draw_keys, notes=state.notes)


def make_sampler(settings: SamplingSettings) -> AbstractSampler:
    """The sampler of the settings; ConfigError where its packages are missing."""
    import_arviz("fit.sampling")
    if settings.method == "nuts":
        require_blackjax()
        return NutsSampler(settings)
    check_nifty(settings.method)
    return VariationalSampler(settings)


def import_arviz(purpose: str) -> Any:
    """The package; ConfigError where it is missing. Its warning of things to come, at its import, is not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            import arviz  # noqa: PLC0415 (optional)
        except ImportError as error:
            raise ConfigError(f"{purpose}: this needs the package arviz: pip install 'rubix-like[sample]'") from error
    return arviz
