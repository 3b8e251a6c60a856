"""How far the quadrature of smooth components is from the integral: re-measured at the best fit with more points.

The model of N points is compared with that of the rule of `TIMES` N points, the mean of models of its parts, each of N:
nothing is compiled for it. The error of the finer rule is left out.
"""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.readers.components import MOST_POINTS
from rubix_like.inference.posterior.fit_model import ComponentsSource
from rubix_like.inference.posterior.linearise import is_dense, models_at, on_mesh, tangents_at
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.inference.posterior.problem import Problem

TIMES: int = 4
"""How many times the points of the model that it is compared with."""

MATTERS: float = 0.1
"""Part of the noise of a voxel beyond which more points are advised."""

MOVES: float = 0.3
"""Standard deviations that the error may move a value by until more points are advised, as many times more."""


SPOILS: float = 1.0
"""Part of the noise of a voxel, or of the standard deviation of a value, beyond which the first line of a result says
so."""


class QuadratureError(NamedTuple):
    """The largest error of a voxel that is fitted, and the rms, in standard deviations of the data; by how many of
    their standard deviations it moves the best values (None: not known); `numbers`: points of each component."""

    largest: float
    rms: float
    shift: dict[str, float] | None
    numbers: dict[str, int]

    @property
    def wanted(self) -> int | None:
        """The number of points that would do, which may be more than there can be; None where there are enough."""
        shift = abs(self._worst[1]) if self._worst else 0.0
        excess = max(self.largest / MATTERS, shift / MOVES)
        return None if excess <= 1 else 2 ** int(np.ceil(np.log2(excess))) * max(self.numbers.values())

    @property
    def trouble(self) -> str:
        """Why the values are not to be trusted; empty where the error is below the noise and moves no value."""
        worst = self._worst
        words = f", which moves {worst[0]} by {worst[1]:+.2g} sigma" if worst and abs(worst[1]) > SPOILS else ""
        if self.largest <= SPOILS and not words:
            return ""
        return f"the quadrature points are too few ({self.points}: they err by {self.largest:.2g} of the noise{words})"

    @property
    def _worst(self) -> tuple[str, float] | None:
        """The value that is moved most, by how many of its standard deviations; None where that is not known."""
        return max((self.shift or {}).items(), key=lambda own: abs(own[1]), default=None)

    @property
    def points(self) -> str:
        """The numbers in words."""
        return ", ".join(f"{number} of {name}" for name, number in self.numbers.items())

    @property
    def note(self) -> str:
        """The error, and the remedy where it matters."""
        text = (
            f"the quadrature of the smooth components ({self.points}) errs by {self.largest:.2g} of the noise at "
            f"most, {self.rms:.2g} rms, at the best fit"
        )
        worst = self._worst
        if worst is not None:
            text = f"{text}, which moves {worst[0]} by {worst[1]:+.1g} sigma and all others by less"
        wanted = self.wanted
        if wanted is None:
            return text
        most = "" if wanted <= MOST_POINTS else ", the most there can be, which is still too few"
        return f"{text}; for less set galaxy.points: {min(wanted, MOST_POINTS)}{most}"


def measure_quadrature(problem: Problem, latent: Float[ndarray, " latent"]) -> QuadratureError | None:
    """The error at some latents; None for a galaxy of another kind."""
    posterior = problem.posterior
    source = posterior.forward.source
    if not isinstance(source, ComponentsSource):
        return None
    cube = _cube(posterior, latent)
    finer = np.zeros_like(cube)
    for part in range(TIMES):
        points = source.base.points(source.numbers, part, TIMES)
        other = eqx.tree_at(lambda tree: tree.forward.source.points, posterior, points)
        finer += _cube(on_mesh(other, posterior.forward.main.layout.mesh), latent) / TIMES
    error, used = cube - finer, np.asarray(posterior.likelihood.inverse_sigma) > 0
    return QuadratureError(
        largest=float(np.abs(error[used]).max()),
        rms=float(np.sqrt(np.mean(error[used] ** 2))),
        shift=_shift(posterior, latent, error),
        numbers=dict(zip(source.base.names, source.numbers, strict=True)),
    )


def _shift(
    posterior: Posterior, latent: Float[ndarray, " latent"], error: Float[ndarray, "y x wave"]
) -> dict[str, float] | None:
    """(J^T J + 1)^-1 J^T error of every latent over its standard deviation, J being the slopes of the voxels alone;
    None where there is no room for them."""
    if not is_dense(posterior.free.n_latent, error.size):
        return None
    inverse_sigma = np.asarray(posterior.likelihood.inverse_sigma)
    slopes = np.asarray(tangents_at(posterior, latent).slopes)[0] * inverse_sigma
    flat = slopes.reshape(len(slopes), -1)
    covariance = np.linalg.inv(flat @ flat.T + np.eye(len(flat)))
    moved = covariance @ (flat @ error.reshape(-1)) / np.sqrt(np.diag(covariance))
    return dict(zip(posterior.free.labels, (float(own) for own in moved), strict=True))


def notes_on_quadrature(found: QuadratureError | None) -> list[str]:
    """The error in words; nothing where it was not measured."""
    return [] if found is None else [found.note]


def _cube(posterior: Posterior, latent: Float[ndarray, " latent"]) -> Float[ndarray, "y x wave"]:
    """The model's flux in units of the data's sigma."""
    return np.asarray(models_at(posterior, latent).flux)[0] * np.asarray(posterior.likelihood.inverse_sigma)
