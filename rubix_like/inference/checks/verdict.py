"""The verdict on a fit: how probable its residuals are if the model is true, where they are furthest beyond noise, how
far values move without a part of the data, and by how much uncertainties are too small at least.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import chdtr, chdtrc, ndtr

from rubix_like.inference.checks.misfit import AXES, HALVES, DataHalf, ResidualStatistics, TestSum
from rubix_like.inference.checks.regions import DataPlaces, most_of_all, worst_place
from rubix_like.inference.described_trees import described_as
from rubix_like.runtime.words import listed


@dataclass(frozen=True)
class Quality:
    """How well the model fits: chi^2 of `n_voxel` voxels, `n_free` numbers being adjusted to them.

    `chi_square` is in units of the data's errors times the fitted noise scale; `loss` is -ln(posterior) + constant.
    `n_solved`: the effective number of the weights of free-form populations that were solved for, the trace of
    A (A^T A + S^T S)^-1 A^T with the templates A (in units of the errors) of the weights that are not 0 and the rows S
    of their smoothness prior.
    """

    chi_square: float = field(
        metadata=described_as("chi^2 of the voxels, in units of the errors times the fitted noise scale")
    )
    n_voxel: int = field(metadata=described_as("voxels that were fitted"))
    n_free: int = field(metadata=described_as("numbers that were adjusted to them"))
    loss: float = field(metadata=described_as("-ln(posterior) + constant"))
    n_solved: float = field(default=0.0, metadata=described_as("effective number of weights that were solved for"))

    @property
    def degrees_of_freedom(self) -> int:
        """Voxels less what was adjusted, coefficients of continua and (rounded) weights of populations included."""
        return self.n_voxel - self.n_free - round(self.n_solved)

    @property
    def reduced(self) -> float:
        """chi^2 per degree of freedom; NaN where there is none."""
        return self.chi_square / self.degrees_of_freedom if self.degrees_of_freedom > 0 else float("nan")


@dataclass(frozen=True)
class Scatter:
    """How the data lie about the mean of a predictive cube, in units of its standard deviation.

    `n_voxel` were compared; `chi_square`: their sum of squares; `within_one`, `within_two`: which share of them is
    closer than 1 and 2 (of normal errors: 0.683 and 0.954).
    """

    n_voxel: int = field(metadata=described_as("voxels that were compared"))
    chi_square: float = field(metadata=described_as("their sum of squares"))
    within_one: float = field(metadata=described_as("share of them within 1 sigma"))
    within_two: float = field(metadata=described_as("share of them within 2 sigma"))


Places = int | Sequence[int] | None
"""Indices of the noise scale and of the likelihood's parameters among the latents; None where they are not free."""

FEWEST: int = 20
"""The least number of pairs, spaxels or bins for a test."""

SIGNIFICANT: float = 1e-3
"""Probability of the residuals, if the model is true, below which there is a misfit."""

_KNOWN = 1e-2
"""Least p (1 - p) of a combination of latents for halves to be compared, p the part of its information in a half."""

_BEYOND_NOISE = 3.0
"""Smaller movements, in standard deviations expected of a true model, count as none."""


class Moves(NamedTuple):
    """Shifts of latents without parts of the data, the standard deviation of that for a model that is true, and words
    for each part: "with the bluer half of the data alone", "without 5000 to 5095 Angstrom"."""

    step: Float[ndarray, "part latent"]
    scatter: Float[ndarray, "part latent"]
    words: tuple[str, ...]


def probabilities(
    residue: ResidualStatistics, latent: Float[ndarray, " latent"], free_scale: Places = None
) -> dict[str, float]:
    """Probabilities of residuals at least as large, or as correlated, for each test by name.

    `free_scale`: places of the noise scale, and of the likelihood's parameters, among the latents (None: they are not
    free); with them chi^2 says nothing.
    """
    found = {"chi^2": _of_squares(residue.chi_square)} if free_scale is None else {}
    for name, statistics in residue.sets.items():
        found |= {f"{test} of {name}": p for test, p in tests_of_set(residue, statistics, free_scale).items()}
    return found | _of_axes(residue, free_scale) | _of_halves(residue, latent, free_scale)


def tests_of_set(residue: ResidualStatistics, part: ResidualStatistics, free_scale: Places) -> dict[str, float]:
    """Probabilities of one of several sets of data; with a free noise scale, its chi^2 against that of all."""
    return {"chi^2": _of_squares(chi_square_of_set(residue, part, free_scale)), **_of_axes(part, free_scale)}


def chi_square_of_set(residue: ResidualStatistics, part: ResidualStatistics, free_scale: Places) -> TestSum:
    """chi^2 of one of several sets of data; with a free noise scale, in units of that of all."""
    unit = 1.0 if free_scale is None else residue.chi_square.ratio
    return part.chi_square._replace(value=part.chi_square.value / unit)


def _of_axes(residue: ResidualStatistics, free_scale: Places) -> dict[str, float]:
    """Probabilities of neighbours along each axis, and of the light of spaxels and bins."""
    found = dict[str, float]()
    for number, axis in enumerate(AXES):
        pairs = TestSum(*(float(np.asarray(sums)[number]) for sums in residue.neighbours))
        if pairs.size < FEWEST:
            continue
        found[f"correlation along {axis}"] = _of_products(pairs)
        runs = _runs(pairs, float(residue.agreeing[number])) * min(1.0, residue.chi_square.ratio)
        found[f"runs along {axis}"] = float(ndtr(-runs))
    found |= {name: _of_squares(summed) for name, summed in _squares(residue, free_scale).items()}
    for name, largest in residue.ranges.items():
        if float(largest.size) >= FEWEST:
            scaled = largest._replace(value=largest.value / _unit_of(residue, free_scale))
            found[name] = min(1.0, float(largest.size) * _of_squares(scaled))
    maps = residue.maps or {}
    return found | {name: _of_products(summed) for name, summed in maps.items() if float(summed.size) >= FEWEST}


def _unit_of(residue: ResidualStatistics, free_scale: Places) -> float:
    """Unit of sums of squares: with a free noise scale chi^2 over what is expected."""
    return 1.0 if free_scale is None else max(residue.chi_square.ratio, 1e-12)


def _squares(residue: ResidualStatistics, free_scale: Places) -> dict[str, TestSum]:
    """The sums of squares of tests by name, with a free noise scale in units of it."""
    squares = {"light of the spaxels": residue.spaxels, "light of the bins": residue.bins, **(residue.squares or {})}
    many = {name: summed for name, summed in squares.items() if float(summed.size) >= FEWEST} | dict(residue.smooth)
    unit = _unit_of(residue, free_scale)
    return {name: summed._replace(value=summed.value / unit) for name, summed in many.items()}


def scatter_of(residue: ResidualStatistics, tests: Mapping[str, float], free_scale: Places = None) -> float:
    """The largest sum of squares per degree of freedom among the tests that a true model would fail once in a thousand
    fits, at least 1: the size of the misfit, in the shape that it has."""
    parts = {"": residue} | {f" of {name}": part for name, part in residue.sets.items()}
    ratios = [1.0]
    for end, part in parts.items():
        sums = _squares(part, free_scale) | ({} if free_scale is not None else {"chi^2": part.chi_square})
        failed = [summed for name, summed in sums.items() if tests.get(name + end, 1.0) * len(tests) < SIGNIFICANT]
        ratios += [summed.ratio for summed in failed]
    return max(ratios)


def excess_of(chi_square: TestSum) -> float:
    """The standard deviations by which chi^2 is above what is expected if the model is true; NaN without any."""
    variance = float(chi_square.variance)
    return (float(chi_square.value) - float(chi_square.mean)) / np.sqrt(variance) if variance > 0 else float("nan")


def together(found: Mapping[str, float]) -> float:
    """The lowest probability times the number of tests (Bonferroni's correction); NaN where there is none."""
    known = [probability for probability in found.values() if np.isfinite(probability)]
    return min(1.0, len(known) * min(known)) if known else float("nan")


def too_small(residue: ResidualStatistics) -> float:
    """Probability of a chi^2 that is as low."""
    scale, degrees = _scaled(residue.chi_square)
    return float(chdtr(degrees, float(residue.chi_square.value) / scale)) if degrees > 0 else float("nan")


def moves_of(residue: ResidualStatistics, latent: Float[ndarray, " latent"], free_scale: Places = None) -> Moves | None:
    """Shifts from the best fit to that of each half, and to those without the regions that stand out, by one
    Gauss-Newton step; the noise scale, if it is free, stays.

    None without derivatives.
    """
    if residue.whole is None or residue.halves is None:
        return None
    kept = _kept(len(latent), free_scale)
    steps, scatters = (np.full((len(residue.halves.matrix), len(latent)), np.nan) for _ in range(2))
    whole = _with_prior(residue.whole, latent, kept)
    for number, part in enumerate(map(DataHalf, *residue.halves)):
        half = _with_prior(part, latent, kept)
        inverse = np.linalg.inv(half.matrix)
        score, covariance = _score(half, whole)
        steps[number, kept] = -inverse @ score
        scatters[number, kept] = np.sqrt(np.maximum(np.diag(inverse @ covariance @ inverse), 0.0))
    if residue.pairs == HALVES:
        words = [f"with the {half} half of the data alone" for pair in residue.pairs for half in pair]
    else:
        words = [words for first, _ in residue.pairs for words in (f"with {first} alone", f"without {first}")]
    return Moves(steps, scatters, (*words, *(f"without {name}" for name in residue.left_out)))


def furthest(
    moves: Moves, sigma: Float[ndarray, " latent"], noise: float = 1.0
) -> tuple[Float[ndarray, " latent"], str]:
    """The longest movement of each latent that noise (in units of the data's errors) does not explain, in units of its
    standard deviation (0: none), and words for the part of the data without which one moves most."""
    with np.errstate(invalid="ignore", divide="ignore"):
        real = np.abs(moves.step) > _BEYOND_NOISE * noise * moves.scatter
        length = np.nan_to_num(np.where(real, np.abs(moves.step) / sigma, 0.0))
    return np.max(length, axis=0), moves.words[int(np.argmax(np.max(length, axis=1)))] if length.any() else ""


def _of_products(sums: TestSum) -> float:
    """Probability of a sum of products of neighbours: normal, for many of them."""
    return float(ndtr(-(float(sums.value) - float(sums.mean)) / np.sqrt(float(sums.variance))))


def _of_squares(sums: TestSum) -> float:
    """Probability of a sum of squares: chi^2's distribution of this mean and variance (Welch 1938 and Satterthwaite
    1946)."""
    scale, degrees = _scaled(sums)
    return float(chdtrc(degrees, float(sums.value) / scale)) if degrees > 0 else float("nan")


def _scaled(sums: TestSum) -> tuple[float, float]:
    mean, variance = float(sums.mean), float(sums.variance)
    return (0.5 * variance / mean, 2 * mean**2 / variance) if mean > 0 and variance > 0 else (1.0, 0.0)


def _runs(pairs: TestSum, agreeing: float) -> float:
    """Excess of neighbours with the same sign (few runs) above half of all: in standard deviations.

    For a correlation rho of neighbours the expected share is 1/2 + asin(rho) / pi (Sheppard 1899).
    """
    _, mean, variance, size, of_particles = (float(number) for number in pairs)
    expected = size * (0.5 + np.arcsin(np.clip(mean / size, -1, 1)) / np.pi)
    return (agreeing - expected) / (0.5 * np.sqrt(size * variance / (variance - of_particles)))


def _with_prior(part: DataHalf, latent: Float[ndarray, " latent"], kept: Int[ndarray, " kept"]) -> DataHalf:
    """Sums of a part of the data and of the prior, J^T J + 1, J^T r + latent, J^T U, of the latents that are kept."""
    matrix, gradient, other_draws = (np.asarray(sums, np.float64) for sums in part)
    return DataHalf(matrix[np.ix_(kept, kept)] + np.eye(len(kept)), (gradient + latent)[kept], other_draws[kept])


def _kept(n_latent: int, free_scale: Places) -> Int[ndarray, " kept"]:
    left_out = () if free_scale is None else np.atleast_1d(free_scale)
    return np.setdiff1d(np.arange(n_latent, dtype=np.int64), left_out)


def _score(half: DataHalf, whole: DataHalf) -> tuple[Float[ndarray, " kept"], Float[ndarray, "kept kept"]]:
    """The gradient of a half at the maximum of the whole (a Gauss-Newton step away, where the search has not quite got
    there), and its covariance if the model is true: A_h - A_h A^-1 A_h, and what other draws add."""
    share = np.linalg.solve(whole.matrix, half.matrix).T
    score = half.gradient - share @ whole.gradient
    other = half.other_draws - share @ whole.other_draws
    covariance = half.matrix - share @ half.matrix
    if other.shape[1]:
        covariance = covariance + other @ other.T / other.shape[1]
    return score, 0.5 * (covariance + covariance.T)


def _of_halves(residue: ResidualStatistics, latent: Float[ndarray, " latent"], free_scale: Places) -> dict[str, float]:
    """Probability that both halves want the same values: the gradient of one at the maximum of both, by its covariance,
    in the combinations of latents that both halves constrain."""
    if residue.whole is None or residue.halves is None:
        return {}
    kept, found = _kept(len(latent), free_scale), {}
    whole = _with_prior(residue.whole, latent, kept)
    if not np.isfinite(whole.matrix).all() or not len(kept):
        return {}
    lower = np.linalg.cholesky(whole.matrix)
    for number, names in enumerate(residue.pairs):
        half = _with_prior(DataHalf(*(sums[2 * number] for sums in residue.halves)), latent, kept)
        score, covariance = _score(half, whole)
        share = np.linalg.solve(lower, np.linalg.solve(lower, half.matrix).T)
        part, directions = np.linalg.eigh(0.5 * (share + share.T))
        chosen = np.linalg.solve(lower.T, directions[:, part * (1 - part) > _KNOWN])
        if not chosen.shape[1]:
            continue
        along, spread = chosen.T @ score, chosen.T @ covariance @ chosen
        square = np.maximum(along @ np.linalg.solve(spread, along), 0.0)
        end = " half" if residue.pairs == HALVES else ""
        found[f"{names[0]} against {names[1]}{end}"] = float(chdtrc(chosen.shape[1], square))
    return found


LARGE: float = 1.1
"""chi^2 per degree of freedom above which errors are too small, however little the values move."""

_LEAST_SHOWN, _WHOLE = 1e-6, 10


@dataclass(frozen=True)
class SetVerdict:
    """Whether the best model of several sets of data describes one of them.

    `chi_square` of its `n_voxel` voxels, in units of the errors times the fitted noise scale; `expected` of a true
    model; `p`: the lowest probability of its tests, times their number; `worst`: the name of that test; `excess`: of
    chi^2 (with a free noise scale, of chi^2 over that of all sets), and `where`, as those of the whole verdict.
    """

    chi_square: float = field(metadata=described_as("chi^2 of its voxels"))
    n_voxel: int = field(metadata=described_as("voxels that were fitted"))
    expected: float = field(metadata=described_as("chi^2 that is expected if the model is true"))
    p: float = field(metadata=described_as("probability of its residuals if the model is true"))
    worst: str = field(metadata=described_as("the test with the lowest probability"))
    excess: float = field(
        default=float("nan"), metadata=described_as("chi^2 above its expectation, in its standard deviations")
    )
    where: str = field(
        default="", metadata=described_as("where the misfit is largest; empty: nowhere far beyond noise")
    )

    @property
    def reduced(self) -> float:
        """chi^2 over what is expected; NaN where nothing is."""
        return self.chi_square / self.expected if self.expected > 0 else float("nan")

    @property
    def misfit(self) -> bool:
        """Whether its residuals are not those of a model that is true."""
        return self.p < SIGNIFICANT


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether the model describes the data; if it does not, all uncertainties hold for the model only.

    | field | shape | |
    |---|---|---|
    | p | | probability of the residuals if the model is true: of the lowest of `tests`, times their number |
    | tests | by name | probability of each test |
    | p_low | | probability of a chi^2 that is as low: below `SIGNIFICANT` the data's errors are too large |
    | reduced | | chi^2 per degree of freedom |
    | scale_free | | whether the noise scale was free: chi^2 then says nothing |
    | moved | (latent,) | how far each number moves at most without a part of the data (half of them, or where |
    | | | residuals stand out), in its standard deviations; 0: no further than by noise; NaN: not known |
    | excess | | by how many standard deviations chi^2 is above what is expected; NaN: not known, or not of a test |
    | where | | of a misfit: the spaxel and the wavelength with the largest chi^2; empty: none is far beyond noise |
    | trouble | | why the values are not those of a maximum of the posterior; empty if nothing is known against it |
    | sets | by name | of several sets of data, whether the model describes each of them |
    | scatter | | the largest chi^2 per degree of freedom of the tests that fail, at least 1; NaN: not known |
    | without | | the part of the data without which a number moves most: "without 5000 to 5095 Angstrom"; empty: none |
    """

    p: float = field(metadata=described_as("probability of the residuals if the model is true"))
    tests: Mapping[str, float]
    p_low: float = field(metadata=described_as("probability of so low a chi^2"))
    reduced: float = field(metadata=described_as("chi^2 per degree of freedom"))
    scale_free: bool = field(metadata=described_as("whether the noise scale was free"))
    moved: Float[ndarray, " latent"] = field(
        metadata=described_as(
            "how far each number moves without a part of the data, in its standard deviations; 0: as by noise; NaN: "
            "not known"
        )
    )
    trouble: str = field(
        default="", metadata=described_as("why the values are no maximum; empty where nothing is known")
    )
    sets: Mapping[str, SetVerdict] = field(default_factory=dict)
    excess: float = field(
        default=float("nan"), metadata=described_as("chi^2 above its expectation, in its standard deviations")
    )
    where: str = field(
        default="", metadata=described_as("where the misfit is largest; empty: nowhere far beyond noise")
    )
    without: str = field(
        default="", metadata=described_as("the part of the data without which a number moves most; empty: none")
    )
    scatter: float = field(
        default=float("nan"),
        metadata=described_as("the largest chi^2 per degree of freedom of the tests that fail, at least 1"),
    )

    @property
    def judged(self) -> bool:
        """Whether there are residuals to judge by."""
        return bool(np.isfinite(self.p) and np.isfinite(self.reduced))

    @property
    def misfit(self) -> bool:
        """Whether the residuals are not those of a model that is true."""
        return self.judged and self.p < SIGNIFICANT

    @property
    def matters(self) -> bool:
        """Whether a misfit may make values wrong by more than their uncertainties: unless all agree within these
        without parts of the data, and the scatter of the residuals is as large as their errors."""
        agree = bool((self.moved <= 1).all()) and (self.scale_free or self.reduced <= LARGE)
        return self.misfit and not agree

    @property
    def doubtful(self) -> Bool[ndarray, " latent"]:
        """Numbers whose uncertainties hold for the model only: all where there is a misfit."""
        return np.full(len(self.moved), self.misfit)

    @property
    def enlarged(self) -> Float[ndarray, " latent"]:
        """Factors that make uncertainties as large as the residuals and the moves of the values ask for, 1 without a
        misfit: sqrt(scatter + moved^2).

        sqrt(chi^2/dof) is the scale factor of the Particle Data Group (Navas et al. 2024, Phys. Rev. D 110, 030001,
        section 5.2.2). That of all voxels is hardly above 1 for an error that is small in each of them, so that
        `scatter` is that of the test which fails most.
        """
        scatter = self.scatter if np.isfinite(self.scatter) else max(1.0, np.nan_to_num(self.reduced))
        return np.where(self.doubtful, np.sqrt(scatter + np.nan_to_num(self.moved) ** 2), 1.0)

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        begin = f"{self.trouble}; at the best values " if self.trouble else ""
        return f"Verdict: {begin}{self._on_model()}"

    def _on_model(self) -> str:
        if not self.judged:
            if np.isfinite(self.reduced):
                return "the model cannot be judged: its residuals, or their derivatives, are not finite numbers"
            return "the model cannot be judged: there are not more voxels than numbers that are fitted"
        p = f"p {self.p:.2g}" if self.p >= _LEAST_SHOWN else f"p < {_LEAST_SHOWN:g}"
        if self.misfit:
            worst = min(
                self.tests, key=lambda name: (self.tests[name], not name.startswith("chi^2 of"), name != "chi^2")
            )
            numbers = f"(chi^2/dof {self.reduced:.4g}, {p} by {worst}){most_of_all(self.where)}"
            return f"the model does not describe {self._disagreeing} {numbers}; {self._on_errors()}"
        excess = f"{self.excess:+.3g} sigma, " if np.isfinite(self.excess) else ""
        numbers = f"(chi^2/dof {self.reduced:.4g}, {excess}{p})"
        if self.p_low < SIGNIFICANT:
            return f"no misfit is found {numbers}, but chi^2 is too low: the errors of the data are too large"
        return f"the model describes the data: no misfit found {numbers}"

    def _on_errors(self) -> str:
        words = "the errors of all values hold for this model only"
        if not self.matters:
            agree = "leaving out any one part of the data moves no value by more than its error"
            return f"{words}; {agree}, but an error common to all data would not show in this way"
        if (self.moved > 1).any():
            length = float(np.nanmax(self.moved))
            times = f"{length:.0f}" if length >= _WHOLE else f"{length:.2g}"
            return f"{words}; {self.without or 'without a part of the data'} a value moves by {times} times its error"
        return words

    @property
    def _disagreeing(self) -> str:
        found = [name for name, of_set in self.sets.items() if of_set.misfit]
        if not self.sets or len(found) == len(self.sets) > 1:
            return "the data" if not self.sets else f"any of the data sets ({listed(found)})"
        return f"the data '{listed(found)}'" if found else f"the data sets {listed(list(self.sets))} together"


def verdict_on(
    residue: ResidualStatistics,
    quality: Quality,
    latent: Float[ndarray, " latent"],
    sigma: Float[ndarray, " latent"] | None,
    free_scale: int | Sequence[int] | None = None,
    trouble: str = "",
    place: DataPlaces | Mapping[str, DataPlaces] | None = None,
) -> Verdict:
    """The verdict on the model at a maximum of the posterior, whose latents have the standard deviations `sigma`.

    `free_scale`: places of the noise scale and of the likelihood's parameters among the latents, where they are free.
    `place`: where the voxels are, to say where a misfit is; of several sets of data by their names.
    """
    places = place if isinstance(place, Mapping) else {}
    tests = probabilities(residue, latent, free_scale)
    moves = None if sigma is None else moves_of(residue, latent, free_scale)
    moved, without = np.full(len(latent), np.nan), ""
    if moves is not None and sigma is not None:
        scattered = free_scale is None and quality.reduced > 1
        moved, without = furthest(moves, sigma, np.sqrt(quality.reduced) if scattered else 1.0)
    found = Verdict(
        p=together(tests) if quality.degrees_of_freedom > 0 else float("nan"),
        tests=tests,
        p_low=too_small(residue) if free_scale is None else 1.0,
        reduced=quality.reduced,
        scale_free=free_scale is not None,
        moved=moved,
        without=without,
        scatter=scatter_of(residue, tests, free_scale),
        trouble=trouble,
        excess=excess_of(residue.chi_square) if free_scale is None else float("nan"),
        sets={name: _on_set(residue, part, free_scale, places.get(name)) for name, part in residue.sets.items()},
    )
    if not found.misfit:
        return found
    if isinstance(place, DataPlaces) and residue.left is not None:
        return dataclasses.replace(found, where=worst_place(residue.left, place))
    known = [(verdict.p, name) for name, verdict in found.sets.items() if verdict.where]
    return dataclasses.replace(found, where=f"in {min(known)[1]}, {found.sets[min(known)[1]].where}" if known else "")


def _on_set(
    residue: ResidualStatistics,
    part: ResidualStatistics,
    free_scale: int | Sequence[int] | None,
    place: DataPlaces | None,
) -> SetVerdict:
    tests = tests_of_set(residue, part, free_scale)
    known = {name: p for name, p in tests.items() if np.isfinite(p)}
    found = SetVerdict(
        chi_square=float(part.chi_square.value),
        n_voxel=int(part.chi_square.size),
        expected=float(part.chi_square.mean),
        p=together(tests),
        worst=min(known, key=lambda name: known[name], default=""),
        excess=excess_of(chi_square_of_set(residue, part, free_scale)),
    )
    if not found.misfit or place is None or part.left is None:
        return found
    return dataclasses.replace(found, where=worst_place(part.left, place))
