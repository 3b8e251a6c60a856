"""The result of a fit: the best values and what they are worth, the way there, the model and what it leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtri

from rubix_like.arguments import named_arguments
from rubix_like.cube.cube import Cube
from rubix_like.errors import expect_count
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checks.discreteness import Discreteness
from rubix_like.inference.checks.edges import LIMIT, Edges, Reach, check_probability
from rubix_like.inference.checks.evidence import Evidence
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.optima import Optimum, other_optima
from rubix_like.inference.checks.verdict import Verdict
from rubix_like.inference.populations.histories import Populations
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.results.result_parts import SetResult
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import counted

Arrays = dict[str, Float[ndarray, "..."]]
"""Dotted name -> an array of the shape of the parameter (of samples: with one more axis in front)."""

_OUTPUTS: dict[str, str] = {
    "summary": "rubix_like.inference.results.result_summaries:fit_summary_lines",
    "write": "rubix_like.inference.results.result_files:FIT_FILE.write",
    "table": "rubix_like.inference.results.result_summaries:quantities",
    "rows": "rubix_like.inference.results.result_summaries:value_table",
    "latex": "rubix_like.inference.results.result_summaries:latex_table",
    "html": "rubix_like.inference.results.result_summaries:fit_summary_html",
    "plot": "rubix_like.inference.results.result_pictures:save_fit_pictures",
    "read": "rubix_like.inference.results.result_files:FIT_FILE.read",
}
"""What turns results into something else, which this module cannot import: it takes results itself."""


@dataclass(frozen=True, eq=False)
class FitResult:
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
    def labels(self) -> tuple[str, ...]:
        """A name for each number that was free: that of its parameter, with an index where it has several."""
        return self.free.labels

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

    def summary(self) -> str:
        """A table of the values, and sentences on how far they can be trusted."""
        return "\n".join(found_at(_OUTPUTS["summary"])(self))

    @named_arguments
    def to_table(self, *, wide: bool = False) -> Any:
        """An `astropy.table.QTable` with a row for each number: parameter, value (the best), sigma, low and high (16
        and 84 %), limit, unit, prior, doubtful.

        `wide`: one row, each number a column with its unit, and its standard deviation beside it.
        """
        return found_at(_OUTPUTS["table" if wide else "rows"])(self)

    def to_latex(self) -> str:
        """The best values with their errors, units and priors as a LaTeX `tabular`."""
        return found_at(_OUTPUTS["latex"])(self)

    @named_arguments
    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write everything to an HDF5 file (docs/fit-file.md) and return its path; raises OSError.

        An earlier result of a fit is replaced; any other file only with `overwrite` (ConfigError)."""
        return found_at(_OUTPUTS["write"])(self, Path(path), overwrite=overwrite)

    @named_arguments
    def plot(
        self, stem: str | Path, truth: Mapping[str, Any] | None = None, *, overwrite: bool = False
    ) -> tuple[Path, ...]:
        """Draw `STEM_steps.png`, `_spectra`, `_maps`, `_pairs` and `_pulls` (docs/fitting.md); return their paths.

        `truth`: values that the data were made of, by dotted name. Earlier pictures of rubix_like are replaced; any
        other file only with `overwrite`. Raises ConfigError without matplotlib, and OSError.
        """
        return found_at(_OUTPUTS["plot"])(self, stem, truth, overwrite=overwrite)

    @classmethod
    @named_arguments
    def read(cls, path: str | Path) -> "FitResult":
        """The result in a file made by `write`; raises FileNotFoundError, or ValueError for another file."""
        return found_at(_OUTPUTS["read"])(Path(path))

    def __repr__(self) -> str:
        quality = self.quality
        return (
            f"FitResult({counted(len(self.labels), 'number')} free, chi^2 = {quality.chi_square:.6g} for "
            f"{quality.degrees_of_freedom} degrees of freedom, {'' if self.converged else 'not '}converged)"
        )

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return found_at(_OUTPUTS["html"])(self)
