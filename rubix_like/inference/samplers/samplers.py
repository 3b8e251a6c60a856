"""The interface of samplers: begin at the best fit, report progress, return draws.

For example, NUTS is chains (`AbstractChainSampler`, chains.py) whose kernel builds trajectories (nuts.py); geoVI
moves a mean and then draws about it (variational.py). Whoever writes a sampler derives from `AbstractChainSampler`,
whose docstring holds a complete one, or from `AbstractSampler` where draws are no chains.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jax.sharding import Mesh
from jaxtyping import Float, Shaped, UInt32
from numpy import ndarray

from rubix_like.config.plug_ins import SAMPLERS
from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.inference.checks.uncertainties import Laplace
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.runtime.optional_packages import import_optional

Statistics = Mapping[str, Shaped[ndarray, "chain draw"]]
"""Name -> one number of every draw."""


@dataclass(frozen=True)
class Statistic:
    """One number that a sampler gives for every draw: what it means, its type, and how a summary says it.

    `in_words` gets the numbers of all draws; None: the summary leaves them out.
    """

    meaning: str
    kind: type[float] | type[int] | type[bool] = float
    in_words: Callable[[ndarray], str] | None = None


LOSS = Statistic("-ln(posterior) of the latents, up to a constant")
"""The statistic `loss` of every sampler."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Draws of the latents from the posterior, or from an approximation of it; host arrays.

    | field | shape | |
    |---|---|---|
    | method | | the sampler's name, e.g. "nuts" |
    | latent | (chain, draw, latent) | whose priors are standard normal |
    | statistics | (chain, draw) by name | `loss`, -ln(posterior) + constant, and those that the sampler declares |
    | keys | (key, 2) | the random keys, one of each chain or pair of draws |
    | step_size | (chain,) or None | of a chain's steps, in standard deviations of the posterior |
    | notes | | sentences on what should be known of them |
    | trouble | | why an approximation is not one of the posterior; empty where nothing is known against it |
    | log_evidence | | ln of the mean of exp(-`loss` + |latent|^2 / 2) over the priors, and its standard deviation, of |
    | | | samplers that integrate; the posterior's constant is not in it. None of others |
    """

    method: str
    latent: Float[ndarray, "chain draw latent"]
    statistics: Statistics
    keys: UInt32[ndarray, "key 2"]
    step_size: Float[ndarray, " chain"] | None = None
    notes: tuple[str, ...] = ()
    log_evidence: tuple[float, float] | None = None
    trouble: str = ""

    @property
    def n_chain(self) -> int:
        """Number of chains."""
        return self.latent.shape[0]

    @property
    def n_draw(self) -> int:
        """How many draws a chain has."""
        return self.latent.shape[1]

    @property
    def is_chain(self) -> bool:
        """Whether each draw depends on the one before."""
        return find_sampler(self.method).is_chain


@dataclass(frozen=True)
class AbstractSampler(ABC):
    """A way to draw from a posterior, registered in `SAMPLERS` by the name that `fit.sampling.method` gives it.

    | of the class | |
    |---|---|
    | title | its name in sentences and pictures |
    | section_type | settings of its section `fit.sampling.NAME`: a frozen model |
    | is_chain | whether each draw depends on the one before, so that R-hat and ESS mean something |
    | is_approximate | whether draws that are no chains come from an approximation of the posterior |
    | packages | optional packages that it imports |
    | statistics | name -> what it gives for every draw beside `loss` |
    """

    settings: SamplingSettings

    title: ClassVar[str]
    section_type: ClassVar[type[AbstractSettings]]
    is_chain: ClassVar[bool]
    is_approximate: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ()
    statistics: ClassVar[Mapping[str, Statistic]] = {}

    @property
    @abstractmethod
    def n_sample(self) -> int:
        """How many chains, or samples, there are to be computed at the same time."""

    @abstractmethod
    def read(self, arrays: Mapping[str, ndarray]) -> Any:
        """A state that `run` had yielded, from its `arrays()`; its `best` is the best fit that the sampler began at."""

    @abstractmethod
    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,
        begun: Any,
    ) -> Iterator[Any]:
        """States from the best fit, or from a state that it had yielded, to the last draw; each can be resumed.

        On a mesh with the axis "sample"; the same settings give the same draws on any.
        """

    @abstractmethod
    def progress(self, state: Any) -> tuple[str, int, int]:
        """The stage that is at work in words, and how much is done of how much."""

    @abstractmethod
    def sampled(self, state: Any) -> Sampled:
        """The draws, from the last state."""

    @abstractmethod
    def notes(self, sampled: Sampled) -> Sequence[str]:
        """Sentences on what a user should know of these draws, with the remedy; none where all is well."""


def find_sampler(method: str) -> type[AbstractSampler]:
    """The class of a method; raises ConfigError with the nearest known name for another word."""
    return SAMPLERS.find(method)


def make_sampler(settings: SamplingSettings) -> AbstractSampler:
    """The sampler of the settings; ConfigError where its packages are missing."""
    chosen = find_sampler(settings.method)
    import_optional("arviz", "fit.sampling")
    for package in chosen.packages:
        import_optional(package, f"fit.sampling.method: '{settings.method}'")
    return chosen(settings)


def describe_statistics(method: str, statistics: Statistics) -> list[str]:
    """Words on the statistics of draws, in the order in which the sampler declares them."""
    declared = find_sampler(method).statistics.items()
    return [statistic.in_words(statistics[name]) for name, statistic in declared if statistic.in_words is not None]
