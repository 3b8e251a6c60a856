"""Results of fits and of samplings, what they leave or predict, and what their files have in common."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Shaped, UInt32
from numpy import ndarray
from scipy.special import ndtri

from rubix_like.arguments import named_arguments
from rubix_like.config.file_layouts import file_size, find_format
from rubix_like.cube.cube import Cube
from rubix_like.cube.files.cube_files import write_cube
from rubix_like.errors import expect_count
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checks.finite_points import Discreteness
from rubix_like.inference.checks.notes import Optimum, other_optima
from rubix_like.inference.checks.uncertainties import (
    LIMIT,
    Edges,
    Evidence,
    Laplace,
    Reach,
    at_edge,
    check_probability,
    ends_of,
    reach_by,
)
from rubix_like.inference.checks.verdict import Quality, Scatter, Verdict
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.populations.populations import Populations
from rubix_like.inference.posterior.fit_model import Free
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.inference.samplers.samplers import Statistics, find_sampler
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.files.outputs import check_writable, own_name, with_addition
from rubix_like.runtime.files.writers import CUBE, check_outputs, configuration_words
from rubix_like.runtime.notes import as_notes
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import counted

_POINTWISE = "log_likelihood"


@dataclass(frozen=True, eq=False)
class SetResult:
    """One of several sets of data.

    | field | |
    |---|---|
    | kind | cube, image or spectrum |
    | model, residual | Cubes on the grid of its data, as those of the whole result; of an image (y, x, 1), of a |
    | | spectrum (1, 1, wave) |
    | predictive | of samples: what the data should be; None of a fit |
    | pointwise | of samples: ln(likelihood) of each spaxel or voxel at some of the draws; None: not asked for, or the |
    | | errors of its voxels are correlated |
    """

    kind: str = field(metadata=described_as("cube, image or spectrum"))
    model: Cube = field(metadata=described_as("the model"))
    residual: Cube = field(metadata=described_as("data less model"))
    predictive: Cube | None = field(default=None, metadata=described_as("what the data should be"))
    pointwise: Pointwise | None = field(default=None, metadata=described_as("ln(likelihood)", at=_POINTWISE))

    @property
    def cubes(self) -> dict[str, Cube]:
        """Its cubes by name."""
        found = {"model": self.model, "predictive": self.predictive, "residual": self.residual}
        return {name: cube for name, cube in found.items() if cube is not None}


class Searches(NamedTuple):
    """Checkpoints of the search, of that with the model error, and of that with more quadrature points; None: none are
    left."""

    first: Path | None = None
    second: Path | None = None
    finer: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All checkpoints that there are."""
        return tuple(file for file in self if file is not None)


@dataclass(frozen=True)
class ResultFiles:
    """The files of a fit or of a sampling.

    `cubes`: those of the first set of data, by the attribute of the result that they show; `draws`: the checkpoint of
    the sampler.
    """

    result: Path
    cubes: Mapping[str, Path]
    searches: Searches
    draws: Path | None = None

    @classmethod
    def of_fit(cls, output: Path) -> "ResultFiles":
        """fit.h5, fit_model.fits, fit_residual.fits, .fit.h5.rubix-like-checkpoint.npz, ...-checkpoint-2.npz and
        ...-checkpoint-finer.npz."""
        return cls._beside(
            output, ("model", "residual"), ("checkpoint.npz", "checkpoint-2.npz", "checkpoint-finer.npz")
        )

    @classmethod
    def of_samples(cls, output: Path) -> "ResultFiles":
        """fit_samples.h5, fit_samples_model.fits, ..._predictive.fits, and the checkpoints under separate names."""
        files = cls._beside(output, ("model", "predictive"), ("search.npz", "search-2.npz", "search-finer.npz"))
        return replace(files, draws=own_name(files.result, "checkpoint.npz"))

    @classmethod
    def _beside(cls, output: Path, cubes: Sequence[str], searches: Sequence[str]) -> "ResultFiles":
        output = output.expanduser()
        places = {name: with_addition(output, f"_{name}").with_suffix(".fits") for name in cubes}
        return cls(output, places, Searches(*(own_name(output, purpose) for purpose in searches)))

    @property
    def checkpoints(self) -> tuple[Path, ...]:
        """All checkpoints."""
        return self.searches.files if self.draws is None else (*self.searches.files, self.draws)

    def cubes_of(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """The cubes, and those of several sets of data (None: one cube)."""
        places = tuple(self.cubes.values())
        return (*places, *(_place_of_set(path, name) for path in places for name in sets or ()))

    def places(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """All files, and those of the cubes of several sets of data (None: one cube)."""
        return (self.result, *self.cubes_of(sets), *self.checkpoints)

    def check(self, shape: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Raise OSError where they could not be written after a fit or a sampling of a cube of this shape."""
        size = file_size(find_format(self.cubes["model"], "default"), shape, noise=True)
        for path in self.places(None):
            check_writable(path, 6 * size)

    def write(self, result: "FitResult | SampleResult", *, goes_on: bool = False) -> None:
        """The cubes, and the result last, so that what has a result is complete; then the checkpoints go, unless the
        fit is to go on."""
        for what, path in self.cubes.items():
            write_cube(getattr(result, what), path, overwrite=True)
            for name, of_set in result.sets.items():
                write_cube(of_set.cubes[what], _place_of_set(path, name), overwrite=True)
        result.write(self.result, overwrite=True)
        for checkpoint in () if goes_on else self.checkpoints:
            checkpoint.unlink(missing_ok=True)


def _place_of_set(path: Path, name: str) -> Path:
    """The file of a set's cube beside that of the first cube: fit_model_NAME.fits."""
    return with_addition(path, f"_{name}")


def check_results(
    kind: str, result: Path, cubes: Iterable[Path], configuration: str | None, setting: str, *, overwrite: bool
) -> None:
    """Raise ConfigError, naming `setting`, where the file of a result or of its cubes is there and is not replaced."""
    maker = configuration_words(configuration)
    check_outputs([result], [kind], setting, overwrite=overwrite, maker=maker)
    check_outputs(cubes, [CUBE], setting, overwrite=overwrite, maker=maker)


def result_lines(path: Path, name: str) -> list[str]:
    """How to look at the file of a result, of the public class `name`."""
    return [
        f"Look at it: rubix-like plot {shlex.quote(str(path))}",
        f"In Python: result = rubix_like.{name}.read({str(path)!r})",
    ]


Arrays = dict[str, Float[ndarray, "..."]]
"""Dotted name -> an array of the shape of the parameter (of samples: with one more axis in front)."""

_OUTPUTS: dict[str, str] = {
    "summary": "rubix_like.inference.results.result_summaries:summary_lines",
    "html": "rubix_like.inference.results.result_summaries:summary_html",
    "table": "rubix_like.inference.results.result_summaries:quantities",
    "rows": "rubix_like.inference.results.result_summaries:value_table",
    "latex": "rubix_like.inference.results.result_summaries:latex_table",
    "to_arviz": "rubix_like.inference.results.inference_data:inference_data",
}
"""Functions of results, which this module cannot import, for they import it."""


_BEST = described_as("the best values as latents, whose priors are N(0, 1)", at="latent/best")

Result = TypeVar("Result", bound="AbstractResult")


@dataclass(frozen=True, eq=False, kw_only=True)
class AbstractResult:
    """A result of a fit or of a sampling: tables, a summary, pictures and a file."""

    _outputs: ClassVar[Mapping[str, str]]

    free: Free
    laplace: Laplace | None = field(metadata=described_as("Gaussian approximation of the latents", at="latent"))
    quality: Quality = field(metadata=described_as("how well the best model fits", at="."))
    verdict: Verdict = field(metadata=described_as("whether the model describes the data"))
    model: Cube = field(metadata=described_as("the model"))
    residual: Cube = field(metadata=described_as("data less model"))
    config: str
    versions: dict[str, str] = field(metadata=described_as("versions of packages"))
    notes: tuple[str, ...] = ()
    sets: Mapping[str, SetResult] = field(default_factory=dict, metadata=described_as("sets of data", at="data_sets"))
    evidence: Evidence | None = field(default=None, metadata=described_as("ln of the evidence"))

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", as_notes(self.notes))

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each number that was free: that of its parameter, with an index where it has several."""
        return self.free.labels

    def summary(self) -> str:
        """A table of the values with what they are worth, and sentences on how far they can be trusted."""
        return "\n".join(found_at(_OUTPUTS["summary"])(self))

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
        return found_at(_OUTPUTS["html"])(self)


@dataclass(frozen=True, eq=False, kw_only=True)
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
    | verdict | | whether the model describes the data, and by how much uncertainties are too small if not |
    | evidence | | ln of the evidence by Laplace's approximation; None without it |
    | inflation | | by how much `sigma`, `covariance` and `laplace` were enlarged (`fit.inflate_sigma`); 1: not |
    | edges | | the posterior of each value at the edge of its prior |
    | starts | | where every start ended, and the way there (`trace_loss`, `trace_gradient_norm`, `trace_latent`) |
    | model, residual | | Cubes on the data's grid: the best model with its continuum, and data less model, masked |
    | | | (`NOT_FITTED`) where the data were not fitted; its variance is the data's times the noise scale squared |
    | parameters | | `Parameters` with the best values, for a pipeline on the data's grid without noise |
    | galaxy | | the particles with the best values; None where nothing of the galaxy was free |
    | config | | the YAML of the whole run, with the section `fit` |
    | versions | | of the packages |
    | populations | by component | free-form populations that were solved for, with draws at the best values |
    | notes | | `Note`s: what was left out, what the data do not say |
    | sets | by name | of several sets of data the model and the residuals of each (`SetResult`); `model` and |
    | | | `residual` are then those of the first cube. chi^2 of each: `verdict.sets` |
    """

    _outputs: ClassVar[Mapping[str, str]] = {
        "plot": "rubix_like.inference.results.result_pictures:save_fit_pictures",
        "file": "rubix_like.inference.results.result_files:FIT_FILE",
    }

    values: Arrays
    sigma: Arrays
    covariance: Float[ndarray, "latent latent"] | None = field(
        metadata=described_as("covariance of the values", "units of the labels")
    )
    latent: Float[ndarray, " latent"] = field(metadata=_BEST)
    edges: Edges = field(metadata=described_as("posteriors at the edges of priors"))
    starts: SearchState = field(metadata=described_as("the starts of the search"))
    parameters: Parameters
    galaxy: Galaxy | None
    discreteness: Discreteness | None = field(default=None, metadata=described_as("shift by finite draws"))
    inflation: float = field(default=1.0, metadata=described_as("by how much errors were enlarged"))
    populations: Mapping[str, Populations] = field(default_factory=dict, metadata=described_as("free-form populations"))

    @property
    def converged(self) -> bool:
        """Whether the start that ended best had converged."""
        return bool(self.starts.converged[self.starts.best])

    @property
    def enlarged_sigma(self) -> Arrays:
        """Standard deviations with what a misfit adds to them (`Verdict.enlarged`), by name; `sigma` without one."""
        factor = self.free.split(np.maximum(self.verdict.enlarged / self.inflation, 1.0))
        return {name: np.asarray(sigma * factor[name]) for name, sigma in self.sigma.items()}

    @property
    def other_optima(self) -> tuple[Optimum, ...]:
        """Other places where starts converged and the fit is (almost) as good, best first; none without `laplace`."""
        return other_optima(self.free, self.starts, self.latent, self.laplace)

    @named_arguments
    def interval(self, probability: float = 0.6827) -> tuple[Arrays, Arrays]:
        """Lower and upper limits of every value: with this probability it lies between, as much below as above.

        Exact for the Gaussian approximation of the latents, so that limits never lie outside a prior; NaN without one.
        Of a value at the edge of its prior they are those of its posterior (`edges`); where that lies against the
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
        return {self.labels[index]: reach for index, reach in zip(self.edges.index, reaches, strict=True)}

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


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleResult(AbstractResult):
    """Draws from the posterior of the free parameters, or from a variational approximation of it.

    | field | shape | |
    |---|---|---|
    | free | | the free parameters with their priors |
    | method | | the sampler's name: "nuts", "geovi" ... (variational draws are one chain) |
    | latent | (chain, draw, latent) | the draws as latents, of which the priors are N(0, 1) |
    | values | (chain, draw, ...) by name | the draws, in the parameters' units |
    | statistics | (chain, draw) by name | `loss`, -ln(posterior) + constant; of NUTS also `acceptance_rate`, |
    | | | `n_leapfrog`, `diverging`, `tree_depth`, `energy`; other samplers have others |
    | step_size | (chain,) or None | of chains |
    | keys | (key, 2) | the random keys of the chains, or of pairs of draws |
    | diagnostics | | R-hat, effective sample sizes, E-BFMI |
    | best, laplace | (latent,) | the best fit's latents, and the Gaussian approximation there (None without one) |
    | quality | | chi^2 of the best fit and what goes with it |
    | verdict | | whether the model describes the data, and by how much uncertainties are too small if not |
    | evidence | | ln of the evidence: the sampler's, or by Laplace's approximation; None without either |
    | checks | | posterior-predictive checks: how often replicated data are further from the model; of several sets of |
    | | | data of each ("chi^2 of NAME") |
    | pointwise | | ln(likelihood) of each spaxel or voxel at some of the draws; None: not asked for, or there are |
    | | | several sets of data, each of which has one |
    | scatter | | how the data lie about `predictive` |
    | model | | Cube on the data's grid: mean and variance of the model, with its continuum, over the posterior |
    | predictive | | Cube: what the data should be; variance: the model's and the noise's; masked (`NOT_FITTED`) |
    | | | where the data were not fitted |
    | residual | | Cube: data less `predictive`, masked alike; its variance is the data's times noise scale^2 |
    | config | | the YAML of the whole run, with the section `fit` |
    | versions | | of the packages |
    | notes | | `Note`s: what should be known before the draws are used |
    | sets | by name | of several sets of data the cubes of each (`SetResult`); `model`, `predictive` and `residual` |
    | | | are then those of the first cube |
    """

    _outputs: ClassVar[Mapping[str, str]] = {
        "plot": "rubix_like.inference.results.result_pictures:save_sample_pictures",
        "file": "rubix_like.inference.results.result_files:SAMPLE_FILE",
    }

    method: str = field(metadata=described_as("the sampler's name"))
    latent: Float[ndarray, "chain draw latent"] = field(
        metadata=described_as("the draws as latents: chain, draw, latent", at="latent/draws")
    )
    values: Arrays
    statistics: Statistics = field(metadata=described_as("statistics of the draws"))
    step_size: Float[ndarray, " chain"] | None = field(metadata=described_as("of the leapfrog steps of each chain"))
    keys: UInt32[ndarray, "key 2"] = field(metadata=described_as("random keys of the chains, or of pairs of draws"))
    diagnostics: Convergence
    best: Float[ndarray, " latent"] = field(metadata=_BEST)
    scatter: Scatter = field(metadata=described_as("how the data lie about the prediction"))
    predictive: Cube = field(metadata=described_as("what the data should be"))
    checks: Mapping[str, float] = field(default_factory=dict)
    pointwise: Pointwise | None = field(default=None, metadata=described_as("ln(likelihood)", at=_POINTWISE))

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
    def enlarged_sigma(self) -> Arrays:
        """Standard deviations with what a misfit adds to them (`Verdict.enlarged`), by name; `sigma` without one."""
        factor = self.free.split(self.verdict.enlarged)
        return {name: np.asarray(sigma * factor[name]) for name, sigma in self.sigma.items()}

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
        """Limits of values whose draws are at the edge of their prior (their median is), by label: an upper ("<") or
        lower limit (">") with this probability, or the interval that holds the value. Raises ValueError for what is no
        probability."""
        check_probability("limits", probability)
        latent = np.median(self.latent.reshape(-1, self.latent.shape[2]), axis=0)
        draws = self.free.join(self.values).reshape(-1, len(latent))
        found = {}
        for index in at_edge(self.free, latent):
            column, ends = draws[:, index], ends_of(self.free, int(index))
            found[self.labels[index]] = reach_by(
                lambda share, column=column: float(np.quantile(column, share)), ends, probability
            )
        return found

    @named_arguments
    def quantile(self, share: float) -> Arrays:
        """The values by name below which this share of the draws lies. Raises ValueError for what is no share."""
        if not 0 <= share <= 1:
            check_probability("share", share)
        return {name: np.asarray(np.quantile(draws, share, axis=0)) for name, draws in self.samples().items()}

    def covariance(self) -> Float[ndarray, "latent latent"]:
        """The covariance of the values, from the draws of all chains, in the order of `labels`."""
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
