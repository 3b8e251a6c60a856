"""How far the best values move where a finite number of draws, or of quadrature points, becomes much larger.

A model of a synthetic galaxy with N stars is the mean over all draws plus grain g. Against smooth data the fit then
minimises |data - mean|^2 + |g|^2, and whatever makes the grain smaller (a wider PSF, a smaller disc) is preferred: a
bias to the same side for all seeds, beside a scatter from seed to seed. Both are measured by a refit, from the best
fit, to the same data with `times` as many stars of another seed, by Gauss-Newton steps of all latents (halved where
they lead up)

    x -> x - (J^T J + 1)^-1 (J^T r + x),       r, J: residuals and their slopes with times N stars,

of which one is enough where it is short (`_CLOSE`). The stars are computed N at a time: models add up, so that nothing
is compiled for their number, and no more memory is taken than for the fit. What is left of grain is less by about
`times`^1.7 in its square for Sobol draws, by `times` for random ones, and so is the bias.

The quadrature of smooth components with N points is compared with that of the rule of `TIMES` N points, the mean of
models of its parts, each of N. The error of the finer rule is left out. A fit begins with `AT_FIRST` points; where
these err by too much at its end, all rules of 2, 4, 8, ... times as many are compared with the largest one, of whose
parts they consist.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.readers.components import MOST_POINTS
from rubix_like.inference.checks.uncertainties import Laplace, at_edge
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.fit_model import ComponentsSource, Free, SyntheticSource
from rubix_like.inference.posterior.posterior import (
    Group,
    Posterior,
    Tangent,
    flux_in_sigma,
    group_of,
    is_dense,
    linear_of,
    mean_of,
    on_mesh,
    tangents,
    tangents_at,
    with_draws,
)
from rubix_like.inference.posterior.problem import Problem
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.words import listed

MATTERS: float = 0.5
"""Shift, in standard deviations of the data alone, beyond which it is noted."""

DOMINATES: float = 1.0
"""Shift, in standard deviations of the data alone, beyond which most of the error is that of finite draws."""

_CLOSE = 3.0
"""Standard deviations of a step up to which the model is linear enough for it to be the last."""

_LONGEST = 0.7
"""No step changes a latent by more, or beyond one by more of its size: priors with limits are flat there."""

_MOST_STEPS = 8

_SEED = 1_928_374_655
"""Seed of the other draws: one that a galaxy is unlikely to have."""

_FALL = 1.5
"""Power of the number of Sobol draws by which shifts fall."""


@dataclass(frozen=True)
class Discreteness:
    """The change that `n_compared` draws, in place of a fit's `n_draws`, would make.

    `shift`: of the values' normal variables (`Free.own_normals`: the latents, but for correlated priors) at the
    best latents `latent`; `sigma`: their standard deviations by the data alone; `kind` of the draws.
    """

    free: Free
    latent: Float[ndarray, " latent"]
    shift: Float[ndarray, " latent"] = field(
        metadata=described_as("of the values' own normal variables, with n_compared draws in place of n_draws")
    )
    sigma: Float[ndarray, " latent"] = field(
        metadata=described_as("standard deviations of these variables by the data alone")
    )
    n_draws: int = field(metadata=described_as("draws of the fit"))
    n_compared: int = field(metadata=described_as("draws that it was compared with"))
    kind: str = field(metadata=described_as("of draws: sobol or random"))
    particles: str = field(metadata=described_as("that are drawn: stars, or gas where no stars are painted"))

    @property
    def values(self) -> Float[ndarray, " latent"]:
        """The shifts of the values, in the parameters' units and the order of the labels."""
        normals = self.free.own_normals(np.asarray(self.latent))
        here, there = (self.free.flat_of(at) for at in (normals, normals + self.shift))
        return np.asarray(there) - np.asarray(here)

    @property
    def value_sigma(self) -> Float[ndarray, " latent"]:
        """The standard deviations of the values by the data alone."""
        return self.sigma * np.abs(self.free.slopes(self.latent))

    def notes(self, consequence: str = "the errors are enlarged by that") -> list[Note]:
        """Says which values finite draws move by more than half a standard deviation, and the remedy."""
        ratio, moved = self.shift / self.sigma, self.values
        far = self._beyond(MATTERS)
        if not far:
            return []
        words = listed(f"{self.free.labels[index]} by {moved[index]:+.2g} ({ratio[index]:+.1f} sigma)" for index in far)
        text = (
            f"{self.n_draws} {self.kind} draws are too few for these data: with {self.n_compared} the best values move "
            f"({words}), and {consequence}; {self.remedy}"
        )
        return [Note("galaxy.few_draws", text, WARNING)]

    @property
    def sentence(self) -> str:
        """A line on the values whose errors are mostly those of finite draws; empty for none."""
        n_value, n_far = len(self.shift), len(self._beyond(DOMINATES))
        if not n_far:
            return ""
        return f"the errors of {n_far} of {n_value} values are mostly those of finite draws: {self.remedy}"

    @property
    def remedy(self) -> str:
        """The settings with which draws no longer matter."""
        draws = "" if self.kind == "sobol" else " and galaxy.draws: sobol"
        return f"set galaxy.n_{self.particles}: {self.n_advised}{draws}"

    def _beyond(self, limit: float) -> list[int]:
        """The numbers that move by more standard deviations, the furthest first, but for those at an edge."""
        ratio, edges = np.abs(self.shift / self.sigma), at_edge(self.free, self.latent)
        return [int(number) for number in np.argsort(-ratio) if ratio[number] > limit and number not in edges]

    @property
    def n_advised(self) -> int:
        """About as many Sobol draws as take the largest shift to half a sigma: of stars 5 x 2^k, of which the disc has
        2^(k + 2) and the bulge 2^k, of gas 2^k, as many as are most even."""
        worst = float(np.max(np.abs(self.shift) / self.sigma))
        wanted = self.n_draws * max(worst / MATTERS, 1.0) ** (1 / _FALL)
        unit = 5 if self.particles == "stars" else 1
        return unit * 2 ** max(int(np.ceil(np.log2(wanted / unit))), 0)


def find_discreteness(
    posterior: Posterior, laplace: Laplace, times: int, report: Report = silent, seed: int = _SEED
) -> Discreteness | str:
    """The shift from the maximum of a posterior with a synthetic galaxy to that with `times` as many draws of a seed,
    or why there is none; `laplace`: the approximation at the maximum, by the data alone."""
    source = posterior.forward.source
    if not isinstance(source, SyntheticSource):
        raise TypeError(f"expected a synthetic source, got {type(source).__name__}")
    sets = source.draws.sets(times, seed)
    best, latent, lowest = laplace.latent, laplace.latent, np.inf
    step = np.zeros_like(best)

    def of_sets(group: Group) -> Iterator[Tangent]:
        for number in range(times):
            report("models with other draws", number, times)
            draws = jax.tree.map(lambda leaf, number=number: leaf[number], sets)
            other = with_draws(posterior, draws)
            yield tangents(other.forward, other.free, group)

    for _ in range(_MOST_STEPS):
        group = group_of(posterior, latent + step)
        there = linear_of(posterior, group, mean_of(of_sets(group)))
        matrix, gradient, loss = (np.asarray(part)[0] for part in (there.matrix, there.gradient, there.loss))
        if not loss <= lowest:
            step = 0.5 * step
            continue
        latent, lowest = latent + step, float(loss)
        try:
            step = -np.linalg.solve(matrix, gradient)
        except np.linalg.LinAlgError:
            step = np.full_like(gradient, np.nan)
        longest = float(np.max(np.abs(step) / np.maximum(1, np.abs(latent)))) / _LONGEST
        if longest < 1 and np.max(np.abs(step) / laplace.sigma) < _CLOSE:
            particles = (
                "stars" if any(painted.kind == "stars" for painted in posterior.forward.main.tables.paint) else "gas"
            )
            n_draws = source.draws.n_stars if particles == "stars" else source.draws.n_gas
            return Discreteness(
                free=posterior.free,
                latent=laplace.latent,
                shift=posterior.free.own_normals(np.asarray(latent + step - best)),
                sigma=laplace.own_sigma,
                n_draws=n_draws,
                n_compared=times * n_draws,
                kind=source.draws.kind,
                particles=particles,
            )
        step = step / max(longest, 1.0)
    return f"the refit with {times} times as many draws was not at its end after {_MOST_STEPS} steps"


def measure_discreteness(problem: Problem, laplace: Laplace | None, report: Report) -> Discreteness | str | None:
    """`find_discreteness` of a fit's end, or why it could not be; None where the settings do not ask for it, and where
    there is nothing to measure: with the particles of a given galaxy, a model error or without an approximation."""
    settings, source = problem.settings, problem.posterior.forward.source
    if settings.discreteness is None or settings.model_error is not None:
        return None
    if laplace is None or not isinstance(source, SyntheticSource):
        return None
    return find_discreteness(problem.posterior, laplace, settings.discreteness.times, report)


def notes_on_discreteness(found: Discreteness | str | None, *, held: bool = True) -> list[Note]:
    """Notes on the shift by finite draws, or on why it is not known; `held`: in the errors."""
    if isinstance(found, str):
        text = (
            f"how far finite draws move the best values could not be measured ({found}), and the errors are those of "
            f"the data alone; draw more particles (galaxy.n_stars, galaxy.n_gas)"
        )
        return [Note("galaxy.draws_not_compared", text, WARNING)]
    if found is None:
        return []
    return found.notes() if held else found.notes("the draws from the posterior do not hold that")


def with_discreteness(
    laplace: Laplace | None, found: Discreteness | str | None
) -> tuple[Laplace | None, Float[ndarray, "latent latent"] | None]:
    """The approximation, and the covariance of the values, with the shift as one more error where it was measured: its
    square is added to the variances; None where there is no approximation."""
    if laplace is None or not isinstance(found, Discreteness):
        return laplace, None if laplace is None else laplace.value_covariance()
    shift = laplace.free.of_own_normals(np.asarray(found.shift))
    covariance = laplace.covariance + np.outer(shift, shift)
    of_values = laplace.value_covariance() + np.outer(found.values, found.values)
    return dataclasses.replace(laplace, covariance=covariance), of_values


TIMES: int = 4
"""How many times the points of the model that it is compared with."""

PART_OF_NOISE: float = 0.1
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
        excess = self.excess
        return None if excess <= 1 else 2 ** int(np.ceil(np.log2(excess))) * max(self.numbers.values())

    @property
    def excess(self) -> float:
        """The error over the largest one that is allowed, of a voxel or of a value."""
        shift = abs(self._worst[1]) if self._worst else 0.0
        return max(self.largest / PART_OF_NOISE, shift / MOVES)

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
        return max((self.shift or {}).items(), key=lambda item: abs(item[1]), default=None)

    @property
    def points(self) -> str:
        """The numbers in words."""
        return ", ".join(f"{number} of {name}" for name, number in self.numbers.items())

    @property
    def note(self) -> Note:
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
            return Note("quadrature.error", text)
        most = "" if wanted <= MOST_POINTS else ", the most there can be, which is still too few"
        return Note(
            "quadrature.error",
            f"{text}; to reduce the error, set galaxy.points: {min(wanted, MOST_POINTS)}{most}",
            WARNING,
        )


AT_FIRST: int = 2**13
"""Points of each component that a fit begins with where none are set: hardly slower than fewer."""

MOST_TIMES: int = 32
"""Times as many, at most, that it ends with."""

MOST_PARTS: int = 4
"""Times as many, at most, that are computed in parts: of more a separate program is faster."""

_COMPARED = 16
"""Parts of the rule that all smaller ones are compared with."""

_SAFE = 0.7
"""Part of the largest error that is allowed, up to which a rule is chosen: its error is measured where it ends."""


def measure_quadrature(problem: Problem, latent: Float[ndarray, " latent"]) -> QuadratureError | None:
    """The error at some latents; None for a galaxy of another kind."""
    posterior = problem.posterior
    source = posterior.forward.source
    if not isinstance(source, ComponentsSource):
        return None
    numbers = dict(zip(source.base.names, source.all_numbers, strict=True))
    error, n_part = flux_in_sigma(posterior, latent), TIMES * (1 + len(source.more))
    for flux in _flux_of_parts(posterior, source, latent, n_part):
        error -= flux / n_part
    return _error_in_words(posterior, latent, numbers)(error)


def parts_wanted(problem: Problem, latent: Float[ndarray, " latent"]) -> int:
    """The least number of parts, each of as many points as the problem has, whose quadrature errs by less than is
    allowed at these latents."""
    posterior = problem.posterior
    source = posterior.forward.source
    if not isinstance(source, ComponentsSource):
        raise TypeError(f"expected a source of components, got {type(source).__name__}")
    strides = [2**power for power in range(_COMPARED.bit_length())]
    sums = {stride: np.zeros(posterior.likelihood.flux.shape) for stride in strides}
    for number, flux in enumerate(_flux_of_parts(posterior, source, latent, _COMPARED)):
        for stride in strides:
            if number % stride == 0:
                sums[stride] += flux * (stride / _COMPARED)
    error_of = _error_in_words(posterior, latent, dict(zip(source.base.names, source.numbers, strict=True)))
    for stride in reversed(strides[1:-1]):
        if error_of(sums[stride] - sums[1]).excess <= _SAFE:
            return _COMPARED // stride
    return _COMPARED


def in_parts(posterior: Posterior, n_part: int) -> Posterior:
    """The posterior of smooth components with so many times the quadrature points, in as many parts: their models are
    made one after the other, by the program of the fit."""
    source = posterior.forward.source
    if not isinstance(source, ComponentsSource):
        raise TypeError(f"expected a source of components, got {type(source).__name__}")
    forward = dataclasses.replace(posterior.forward, source=source.of_parts(n_part))
    return on_mesh(dataclasses.replace(posterior, forward=forward), posterior.forward.main.layout.mesh)


def _flux_of_parts(
    posterior: Posterior, source: ComponentsSource, latent: Float[ndarray, " latent"], n_part: int
) -> Iterator[Float[ndarray, "y x wave"]]:
    """The models, in units of the data's sigma, with each part of the rule of so many times the points of one part, by
    the program of the fit."""
    mesh = posterior.forward.main.layout.mesh
    for part in range(n_part):
        points = source.base.points(source.numbers, part, n_part)
        forward = dataclasses.replace(posterior.forward, source=dataclasses.replace(source, points=points, more=()))
        yield flux_in_sigma(on_mesh(dataclasses.replace(posterior, forward=forward), mesh), latent)


def _error_in_words(
    posterior: Posterior, latent: Float[ndarray, " latent"], numbers: dict[str, int]
) -> Callable[[Float[ndarray, "y x wave"]], QuadratureError]:
    """The function from the error of a cube to its description: by how much it moves each latent, by
    (J^T J + 1)^-1 J^T error over the standard deviation, is known where there is room for J, the slopes of the voxels
    alone, of one part of the points."""
    inverse_sigma, flat, covariance = np.asarray(posterior.likelihood.inverse_sigma), None, np.zeros((0, 0))
    if is_dense(posterior.free.n_latent, posterior.likelihood.flux.size):
        alone = dataclasses.replace(posterior, forward=next(iter(posterior.forward.in_parts())))
        slopes = np.asarray(tangents_at(alone, latent).slopes)[0] * inverse_sigma
        flat = slopes.reshape(len(slopes), -1)
        covariance = np.linalg.inv(flat @ flat.T + np.eye(len(flat)))

    def describe(error: Float[ndarray, "y x wave"]) -> QuadratureError:
        used, shift = error[inverse_sigma > 0], None
        if flat is not None:
            moved = covariance @ (flat @ error.reshape(-1)) / np.sqrt(np.diag(covariance))
            shift = dict(zip(posterior.free.labels, moved.tolist(), strict=True))
        return QuadratureError(float(np.abs(used).max()), float(np.sqrt(np.mean(used**2))), shift, numbers)

    return describe
