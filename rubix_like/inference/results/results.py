"""Results of fits and of samplings: values and what they are worth, the model, what it leaves or predicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float, Shaped, UInt32
from numpy import ndarray
from scipy.special import ndtri

from rubix_like.arguments import named_arguments
from rubix_like.cube.cube import Cube
from rubix_like.errors import expect_count
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checks.edges import LIMIT, Edges, Reach, at_edge, check_probability, ends_of, reach_by
from rubix_like.inference.checks.finite_points import Discreteness
from rubix_like.inference.checks.laplace import Evidence, Laplace
from rubix_like.inference.checks.notes import Optimum, other_optima
from rubix_like.inference.checks.verdict import Quality, Scatter, Verdict
from rubix_like.inference.populations.populations import Populations
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.results.result_parts import SetResult
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.inference.samplers.samplers import Statistics, find_sampler
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import counted

Arrays = dict[str, Float[ndarray, "..."]]
"""Dotted name -> an array of the shape of the parameter (of samples: with one more axis in front)."""

_OUTPUTS: dict[str, str] = {
    "table": "rubix_like.inference.results.result_summaries:quantities",
    "rows": "rubix_like.inference.results.result_summaries:value_table",
    "latex": "rubix_like.inference.results.result_summaries:latex_table",
    "to_arviz": "rubix_like.inference.results.inference_data:inference_data",
}
"""What turns results into something else, which this module cannot import: it takes results itself."""


Result = TypeVar("Result", bound="AbstractResult")


class AbstractResult:
    """What results of fits and of samplings have alike: tables, a summary, pictures and a file."""

    _outputs: ClassVar[Mapping[str, str]]
    free: Free

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each number that was free: that of its parameter, with an index where it has several."""
        return self.free.labels

    def summary(self) -> str:
        """A table of the values with what they are worth, and sentences on how far they can be trusted."""
        return "\n".join(found_at(self._outputs["summary"])(self))

    @named_arguments
    def to_table(self, *, wide: bool = False) -> Any:
        """An `astropy.table.QTable` with a row for each number: parameter, value (of a fit the best, of samples the
        mean), sigma, low and high (16 and 84 %), limit, unit, prior, doubtful.

        `wide`: one row, each number a column with its unit, and its standard deviation beside it.
        """
        return found_at(_OUTPUTS["table" if wide else "rows"])(self)

    def to_latex(self) -> str:
        """The values (the best, or the means of the draws) with errors, units and priors as a LaTeX `tabular`."""
        return found_at(_OUTPUTS["latex"])(self)

    @named_arguments
    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write everything to an HDF5 file (docs/fit-file.md, docs/sample-file.md) and return its path; raises OSError.

        An earlier result of the same kind is replaced; any other file only with `overwrite` (ConfigError)."""
        return found_at(self._outputs["file"]).write(self, Path(path), overwrite=overwrite)

    @named_arguments
    def plot(
        self, stem: str | Path, truth: Mapping[str, Any] | None = None, *, overwrite: bool = False
    ) -> tuple[Path, ...]:
        """Draw pictures (docs/fitting.md, docs/posteriors.md) as `STEM_*.png`; return their paths.

        `truth`: values that the data were made of, by dotted name. Earlier pictures of rubix_like are replaced; any
        other file only with `overwrite`. Raises ConfigError without matplotlib, and OSError.
        """
        return found_at(self._outputs["plot"])(self, stem, truth, overwrite=overwrite)

    @classmethod
    @named_arguments
    def read(cls: type[Result], path: str | Path) -> Result:
        """The result in a file made by `write`; raises FileNotFoundError, or ValueError for another file."""
        return found_at(cls._outputs["file"]).read(Path(path))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return found_at(self._outputs["html"])(self)


@dataclass(frozen=True, eq=False)
class FitResult(AbstractResult):
    """The maximum of the posterior and its Gaussian approximation there (Laplace's).

    | field | shape | |
    |---|---|---|
    | free | | the free parameters with their priors |
    | values | by name | the best values, in the parameters' units |
    | sigma | by name | their standard deviations, with `discreteness`; NaN without `laplace`, and at the edge of a |
    | | | prior (`edges`) |
    | covariance | (latent, latent) or None | of the values, in the order of `labels`, by their slopes, sigma^2 on its |
    | | | diagonal; it says nothing of values whose sigma is NaN |
    | latent | (latent,) | the best values as latents, whose priors are N(0, 1) |
    | laplace | | the Gaussian approximation of the latents; None where there are too many of them |
    | discreteness | | of a synthetic galaxy: how far its finite draws move the values; None: not measured |
    | quality | | chi^2 and what goes with it |
    | verdict | | whether the model describes the data, and which uncertainties are too small |
    | evidence | | ln of the evidence by Laplace's approximation; None without it |
    | inflation | | by how much `sigma`, `covariance` and `laplace` were enlarged (`fit.inflate_sigma`); 1: not |
    | edges | | the posterior of each value at the edge of its prior |
    | starts | | where every start ended, and the way there (`trace_loss`, `trace_gradient_norm`, `trace_latent`) |
    | model, residual | | Cubes on the data's grid: the best model with its continuum, and data less model, masked |
    | | | (`NOT_FITTED`) where the data were not fitted; its variance is the data's times the noise scale squared |
    | parameters | | `Parameters` with the best values: `pipeline(galaxy, result.parameters)` is the model |
    | galaxy | | the particles with the best values; None where nothing of the galaxy was free |
    | config | | the YAML of the whole run, with the section `fit` |
    | versions | | of the packages |
    | populations | by component | free-form populations that were solved for, with draws at the best values |
    | notes | | sentences: what was left out, what the data do not say |
    | sets | by name | of several sets of data the model and the residuals of each (`SetResult`); `model` and |
    | | | `residual` are then those of the first cube. chi^2 of each: `verdict.sets` |
    """

    _outputs: ClassVar[Mapping[str, str]] = {
        "summary": "rubix_like.inference.results.result_summaries:fit_summary_lines",
        "html": "rubix_like.inference.results.result_summaries:fit_summary_html",
        "plot": "rubix_like.inference.results.result_pictures:save_fit_pictures",
        "file": "rubix_like.inference.results.result_files:FIT_FILE",
    }

    free: Free
    values: Arrays
    sigma: Arrays
    covariance: Float[ndarray, "latent latent"] | None
    latent: Float[ndarray, " latent"]
    laplace: Laplace | None
    quality: Quality
    verdict: Verdict
    edges: Edges
    starts: SearchState
    model: Cube
    residual: Cube
    parameters: Parameters
    galaxy: Galaxy | None
    config: str
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    discreteness: Discreteness | None = None
    sets: Mapping[str, SetResult] = field(default_factory=dict)
    evidence: Evidence | None = None
    inflation: float = 1.0
    populations: Mapping[str, Populations] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether the start that ended best had converged."""
        return bool(self.starts.converged[self.starts.best])

    @property
    def other_optima(self) -> tuple[Optimum, ...]:
        """Other places where starts converged and the fit is (almost) as good, best first; none without `laplace`."""
        return other_optima(self.free, self.starts, self.latent, self.laplace)

    @named_arguments
    def interval(self, probability: float = 0.6827) -> tuple[Arrays, Arrays]:
        """Lower and upper limits of every value: with this probability it lies between, as much below as above.

        Exact for the Gaussian approximation of the latents, so that limits never lie outside a prior; NaN without one.
        Of a value at the edge of its prior they are those of its own posterior (`edges`); where that lies against the
        end of the prior, one of them is that end, and nothing is left out on its side. Raises ValueError for what is
        no probability.
        """
        check_probability("interval", probability)
        sigma = np.full_like(self.latent, np.nan) if self.laplace is None else self.laplace.own_sigma
        reach = sigma * float(ndtri(0.5 + probability / 2))
        normals = self.free.own_normals(np.asarray(self.latent))
        ends = [np.array(self.free.flat_of(end), np.float64) for end in (normals - reach, normals + reach)]
        for number, index in enumerate(self.edges.index):
            limits = self.edges.reach(self.free, number, probability)
            ends[0][index], ends[1][index] = limits.low, limits.high
        return self.free.split(ends[0]), self.free.split(ends[1])

    @named_arguments
    def limits(self, probability: float = LIMIT) -> dict[str, Reach]:
        """The limit of each value at the edge of its prior, by its label: an upper ("<") or lower limit (">") with this
        probability, or the interval that holds it. Raises ValueError for what is no probability."""
        check_probability("limits", probability)
        reaches = [self.edges.reach(self.free, number, probability) for number in range(len(self.edges.index))]
        return {self.labels[index]: own for index, own in zip(self.edges.index, reaches, strict=True)}

    @named_arguments
    def samples(self, n: int, seed: int = 0) -> Arrays:
        """`n` draws from the Gaussian approximation, by name: (n, ...) each; the same for the same seed.

        Raises ValueError where there is none (`notes` say why), and for less than one draw.
        """
        if not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"samples: expected a number of draws, at least one, got {n!r}")
        expect_count(seed, "seed", least=0)
        if self.laplace is None:
            raise ValueError(f"samples: expected a Gaussian approximation, got none: {'; '.join(self.notes)}")
        return self.free.split(self.laplace.sample(seed, n))

    def __repr__(self) -> str:
        quality = self.quality
        return (
            f"FitResult({counted(len(self.labels), 'number')} free, chi^2 = {quality.chi_square:.6g} for "
            f"{quality.degrees_of_freedom} degrees of freedom, {'' if self.converged else 'not '}converged)"
        )


@dataclass(frozen=True, eq=False)
class SampleResult(AbstractResult):
    """Draws from the posterior of the free parameters, or from a variational approximation of it.

    | field | shape | |
    |---|---|---|
    | free | | the free parameters with their priors |
    | method | | the sampler's name: "nuts", "geovi" ... (variational draws are one chain) |
    | latent | (chain, draw, latent) | the draws as latents, of which the priors are N(0, 1) |
    | values | (chain, draw, ...) by name | the draws, in the parameters' units |
    | statistics | (chain, draw) by name | `loss`, -ln(posterior) + constant; of NUTS also `acceptance_rate`, |
    | | | `n_leapfrog`, `diverging`, `tree_depth`, `energy`; other samplers have their own |
    | step_size | (chain,) or None | of chains |
    | keys | (key, 2) | the random keys of the chains, or of pairs of draws |
    | diagnostics | | R-hat, effective sample sizes, E-BFMI |
    | best, laplace | (latent,) | the best fit's latents, and the Gaussian approximation there (None without one) |
    | quality | | chi^2 of the best fit and what goes with it |
    | verdict | | whether the model describes the data, and which uncertainties are too small |
    | evidence | | ln of the evidence: the sampler's, or by Laplace's approximation; None without either |
    | checks | | posterior-predictive checks: how often replicated data are further from the model; of several sets of |
    | | | data of each ("chi^2 of NAME") |
    | pointwise | | ln(likelihood) of each spaxel or voxel at some of the draws; None: not asked for, or there are |
    | | | several sets of data, each of which has its own |
    | scatter | | how the data lie about `predictive` |
    | model | | Cube on the data's grid: mean and variance of the model, with its continuum, over the posterior |
    | predictive | | Cube: what the data should be; variance: the model's and the noise's; masked (`NOT_FITTED`) |
    | | | where the data were not fitted |
    | residual | | Cube: data less `predictive`, masked alike; its variance is the data's times noise scale^2 |
    | config | | the YAML of the whole run, with the section `fit` |
    | versions | | of the packages |
    | notes | | sentences: what should be known before the draws are used |
    | sets | by name | of several sets of data the cubes of each (`SetResult`); `model`, `predictive` and `residual` |
    | | | are then those of the first cube |
    """

    _outputs: ClassVar[Mapping[str, str]] = {
        "summary": "rubix_like.inference.results.result_summaries:sample_summary_lines",
        "html": "rubix_like.inference.results.result_summaries:sample_summary_html",
        "plot": "rubix_like.inference.results.result_pictures:save_sample_pictures",
        "file": "rubix_like.inference.results.result_files:SAMPLE_FILE",
    }

    free: Free
    method: str
    latent: Float[ndarray, "chain draw latent"]
    values: Arrays
    statistics: Statistics
    step_size: Float[ndarray, " chain"] | None
    keys: UInt32[ndarray, "key 2"]
    diagnostics: Convergence
    best: Float[ndarray, " latent"]
    laplace: Laplace | None
    quality: Quality
    verdict: Verdict
    scatter: Scatter
    model: Cube
    predictive: Cube
    residual: Cube
    config: str
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    sets: Mapping[str, SetResult] = field(default_factory=dict)
    evidence: Evidence | None = None
    checks: Mapping[str, float] = field(default_factory=dict)
    pointwise: Pointwise | None = None

    @property
    def title(self) -> str:
        """The sampler's name in sentences and pictures."""
        return find_sampler(self.method).title

    @property
    def is_chain(self) -> bool:
        """Whether each draw depends on the one before."""
        return find_sampler(self.method).is_chain

    @property
    def n_chain(self) -> int:
        """How many chains there are."""
        return self.latent.shape[0]

    @property
    def n_draw(self) -> int:
        """How many draws a chain has."""
        return self.latent.shape[1]

    @property
    def mean(self) -> Arrays:
        """The mean of all draws, by name."""
        return {name: np.asarray(draws.mean(axis=0)) for name, draws in self.samples().items()}

    @property
    def sigma(self) -> Arrays:
        """Standard deviations of all draws, by name."""
        return {name: np.asarray(draws.std(axis=0)) for name, draws in self.samples().items()}

    @property
    def best_values(self) -> Arrays:
        """The best fit's values, by name."""
        return values_of(self.free, self.best)

    @named_arguments
    def interval(self, probability: float = 0.6827) -> tuple[Arrays, Arrays]:
        """Lower and upper limits of every value: this share of the draws lies between, as many below as above.

        Raises ValueError for what is no probability.
        """
        check_probability("interval", probability)
        tail = (1 - probability) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    @named_arguments
    def limits(self, probability: float = LIMIT) -> dict[str, Reach]:
        """Of each value whose draws are at the edge of its prior (their median is), by its label: an upper ("<") or
        lower limit (">") with this probability, or the interval that holds it. Raises ValueError for what is no
        probability."""
        check_probability("limits", probability)
        latent = np.median(self.latent.reshape(-1, self.latent.shape[2]), axis=0)
        draws = self.free.join(self.values).reshape(-1, len(latent))
        found = {}
        for index in at_edge(self.free, latent):
            own, ends = draws[:, index], ends_of(self.free, int(index))
            found[self.labels[index]] = reach_by(
                lambda share, own=own: float(np.quantile(own, share)), ends, probability
            )
        return found

    @named_arguments
    def quantile(self, share: float) -> Arrays:
        """The values by name below which this share of the draws lies."""
        return {name: np.asarray(np.quantile(draws, share, axis=0)) for name, draws in self.samples().items()}

    def covariance(self) -> Float[ndarray, "latent latent"]:
        """Of the values, from the draws of all chains, in the order of `labels`."""
        flat = self.free.join(self.values)
        return np.atleast_2d(np.cov(flat.reshape(-1, flat.shape[2]), rowvar=False, ddof=0))

    def samples(self) -> Arrays:
        """The draws of all chains one after the other, by name: (n, ...) each."""
        return {name: draws.reshape(-1, *draws.shape[2:]) for name, draws in self.values.items()}

    def by_name(self, flat: Shaped[ndarray, "*n latent"]) -> dict[str, Any]:
        """Numbers in the order of the labels (`diagnostics.r_hat`) as arrays of the parameters' shapes."""
        return self.free.split(flat)

    def to_arviz(self) -> Any:
        """The draws as an `arviz.InferenceData`: `posterior`, `sample_stats`, `observed_data`, `constant_data`, and
        `log_likelihood` (of spaxels or voxels, at some of the draws), by which ArviZ compares models (`loo`, `waic`).

        Raises ConfigError without ArviZ.
        """
        return found_at(_OUTPUTS["to_arviz"])(self)

    @property
    def size_words(self) -> str:
        """How many draws there are: "4 chains of 1000 draws", or "1000 draws" of what makes no chains."""
        chains = f"{counted(self.n_chain, 'chain')} of " if self.is_chain else ""
        return chains + counted(self.n_draw, "draw")

    def __repr__(self) -> str:
        return f"SampleResult({self.method}, {counted(len(self.labels), 'number')} free, {self.size_words})"


def values_of(free: Free, latent: Float[ndarray, "*n latent"]) -> Arrays:
    """The values of any number of latents, by name, through the maps of their priors."""
    return free.split(flat_values(free, latent))


def flat_values(free: Free, latent: Float[ndarray, "*n latent"]) -> Float[ndarray, "*n latent"]:
    """The values of any number of latents, in the order of the labels."""
    return np.asarray(free.flat(np.asarray(latent)))
