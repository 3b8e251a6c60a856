"""What a fit ends with: the best values and what they are worth, the way there, the model and what it leaves."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.cube import Cube
from rubix_like.galaxy import Galaxy
from rubix_like.inference.free import Free
from rubix_like.parameters import Parameters

Arrays = dict[str, Float[ndarray, "..."]]
"""Dotted name -> an array of the shape of the parameter (of samples: with one more axis in front)."""


@dataclass(frozen=True, eq=False)
class Start:
    """Where a start ended, and its way there: loss (half chi^2 plus prior), gradient and latents before each step."""

    latent: Float[ndarray, " latent"]
    loss: float
    n_step: int
    converged: bool
    losses: Float[ndarray, " step"]
    gradient_norms: Float[ndarray, " step"]


@dataclass(frozen=True)
class Quality:
    """How well the model fits: chi^2 of `n_voxel` voxels, `n_free` numbers being adjusted to them.

    `chi_square` is in units of the data's errors times the fitted noise scale; `loss` is -ln(posterior) + constant.
    """

    chi_square: float
    n_voxel: int
    n_free: int
    loss: float

    @property
    def degrees_of_freedom(self) -> int:
        """Voxels less what was adjusted, the coefficients of the continua included."""
        return self.n_voxel - self.n_free

    @property
    def reduced(self) -> float:
        """chi^2 per degree of freedom; NaN where there is none."""
        return self.chi_square / self.degrees_of_freedom if self.degrees_of_freedom > 0 else float("nan")


@dataclass(frozen=True, eq=False)
class FitResult:
    """The maximum of the posterior and its Gaussian approximation there (Laplace's).

    | field | shape | |
    |---|---|---|
    | free | | the free parameters with their priors |
    | values, sigma | by name | best values and their standard deviations, in the parameters' units |
    | covariance | (latent, latent) | of the values, in the order of `labels` |
    | latent, latent_covariance | (latent,), (latent, latent) | the same of the latents, of which the priors are N(0, 1) |
    | quality | | chi^2 and what goes with it |
    | starts | | all starts, as they were begun |
    | model, residual | | Cubes on the data's grid: the best model with its continuum, and data less model, masked |
    | | | (`NOT_FITTED`) where the data were not fitted; its variance is the data's times the fitted noise scale |
    | parameters | | `Parameters` with the best values: `pipeline(galaxy, result.parameters)` is the model |
    | galaxy | | the particles with the best values; None where nothing of the galaxy was free |
    | config | | the YAML of the whole run, with the section `fit` |
    | versions | | of the packages |
    | notes | | sentences: what was left out, what the data do not say |
    """

    free: Free
    values: Arrays
    sigma: Arrays
    covariance: Float[ndarray, "latent latent"]
    latent: Float[ndarray, " latent"]
    latent_covariance: Float[ndarray, "latent latent"]
    quality: Quality
    starts: tuple[Start, ...]
    model: Cube
    residual: Cube
    parameters: Parameters
    galaxy: Galaxy | None
    config: str
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each number that was free: that of its parameter, with an index where it has several."""
        return self.free.labels

    @property
    def best(self) -> int:
        """Which start the result is from."""
        return int(np.argmin([start.loss for start in self.starts]))

    @property
    def converged(self) -> bool:
        """Whether that start had converged."""
        return self.starts[self.best].converged

    def interval(self, probability: float = 0.6827) -> tuple[Arrays, Arrays]:
        """Lower and upper limits of every value: with this probability it lies between, as much below as above.

        Exact for the Gaussian approximation of the latents, so that limits never lie outside a prior.
        """
        from scipy.special import ndtri  # noqa: PLC0415 (slow to import)

        reach = float(ndtri(0.5 + probability / 2)) * np.sqrt(np.diag(self.latent_covariance))
        return self._at(self.latent - reach), self._at(self.latent + reach)

    def samples(self, n: int, seed: int = 0) -> Arrays:
        """`n` draws from the Gaussian approximation, by name: (n, ...) each; the same for the same seed."""
        root = np.linalg.cholesky(self.latent_covariance)
        normal = np.random.default_rng(seed).standard_normal((n, len(self.latent)))
        return self._at(self.latent + normal @ root.T)

    def correlation(self) -> Float[ndarray, "latent latent"]:
        """Of the latents, in the order of `labels`."""
        sigma = np.sqrt(np.diag(self.latent_covariance))
        return self.latent_covariance / np.outer(sigma, sigma)

    def summary(self) -> str:
        """A table of the values, and sentences on how far they can be trusted."""
        from rubix_like.inference.summary import summary_lines  # noqa: PLC0415 (it takes results)

        return "\n".join(summary_lines(self))

    def write(self, path: str | Path) -> Path:
        """Write everything to an HDF5 file (docs/fit-file.md) and return its path."""
        from rubix_like.inference.result_file import write_result  # noqa: PLC0415 (its reader builds results)

        return write_result(self, Path(path))

    @classmethod
    def read(cls, path: str | Path) -> "FitResult":
        """The result in a file made by `write`, equal to what was written."""
        from rubix_like.inference.result_file import read_result  # noqa: PLC0415 (its reader builds results)

        return read_result(Path(path))

    def __repr__(self) -> str:
        quality = self.quality
        return (
            f"FitResult({len(self.labels)} numbers free, chi^2 = {quality.chi_square:.6g} for "
            f"{quality.degrees_of_freedom} degrees of freedom, {'' if self.converged else 'not '}converged)"
        )

    def __str__(self) -> str:
        return self.summary()

    def _at(self, latent: Float[ndarray, "*n latent"]) -> Arrays:
        """Values of latents, for any number of them at once."""
        flat = latent.reshape(-1, len(self.latent))
        values = [self.free.values(row) for row in flat]
        return {
            name: np.array([np.asarray(own[name]) for own in values]).reshape(*latent.shape[:-1], *np.shape(first))
            for name, first in self.values.items()
        }
