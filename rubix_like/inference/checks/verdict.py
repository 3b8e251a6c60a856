"""The verdict on a fit: whether its model describes the data, and which uncertainties are too small."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.inference.checks.misfit import Residue
from rubix_like.inference.checks.residual_tests import (
    chi_square_of_set,
    excess_of,
    furthest,
    moves_of,
    probabilities,
    tests_of_set,
    together,
    too_small,
)
from rubix_like.inference.checks.worst_place import DataPlaces, most_of_all, worst_place
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.quality import Quality
from rubix_like.runtime.words import listed

SIGNIFICANT: float = 1e-3
"""Probability of the residuals, if the model is true, below which there is a misfit."""

LARGE: float = 1.1
"""chi^2 per degree of freedom above which a misfit matters."""

_LEAST_SHOWN = 1e-99


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
    """Whether the model describes the data, in two steps: is there a misfit, and does it matter?

    | field | shape | |
    |---|---|---|
    | p | | probability of the residuals if the model is true: of the lowest of `tests`, times their number |
    | tests | by name | probability of each test |
    | p_low | | probability of a chi^2 that is as low: below `SIGNIFICANT` the data's errors are too large |
    | reduced | | chi^2 per degree of freedom |
    | scale_free | | whether the noise scale was free: chi^2 then says nothing |
    | moved | (latent,) | how far each number moves at most when half of the data are left out, in its standard |
    | | | deviations; 0 where noise alone would explain it |
    | excess | | by how many standard deviations chi^2 is above what is expected; NaN: not known, or not of a test |
    | where | | of a misfit: the spaxel and the wavelength with the largest chi^2; empty: none is far beyond noise |
    | trouble | | why the values are not those of a maximum of the posterior; empty if nothing is known against it |
    | sets | by name | of several sets of data, whether the model describes each of them |
    """

    p: float = field(metadata=described_as("probability of the residuals if the model is true"))
    tests: Mapping[str, float]
    p_low: float = field(metadata=described_as("probability of so low a chi^2"))
    reduced: float = field(metadata=described_as("chi^2 per degree of freedom"))
    scale_free: bool = field(metadata=described_as("whether the noise scale was free"))
    moved: Float[ndarray, " latent"] = field(
        metadata=described_as(
            "how far each number moves with half of the data, in its standard deviations; 0: as noise does"
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
        """Whether a misfit makes uncertainties too small."""
        return bool(self.doubtful.any())

    @property
    def doubtful(self) -> Bool[ndarray, " latent"]:
        """Which numbers have too small an uncertainty: all if chi^2 is large, else those that move."""
        if self.misfit and not self.scale_free and self.reduced > LARGE:
            return np.ones(len(self.moved), bool)
        return (self.moved > 1) & self.misfit

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
        excess = f"{self.excess:+.3g} sigma, " if np.isfinite(self.excess) else ""
        p = f"{self.p:.2g}" if self.p >= _LEAST_SHOWN else f"< {_LEAST_SHOWN:g}"
        numbers = f"chi^2/dof {self.reduced:.4g}, {excess}p {p}"
        if not self.misfit and self.p_low < SIGNIFICANT:
            return f"no misfit is found ({numbers}), but chi^2 is too low: the errors of the data are too large"
        if not self.misfit:
            return f"the model describes the data: no misfit found ({numbers})"
        worst = min(self.tests, key=lambda name: (self.tests[name], not name.startswith("chi^2 of"), name != "chi^2"))
        numbers = f"({numbers} by {worst}){most_of_all(self.where)}"
        if not self.matters:
            words = f"the model describes the data but for a small misfit {numbers}"
            unmoved = "it does not matter: no value moves by more than its sigma when half of the data are left out"
            return f"{words}, which may be due to that" if self.trouble else f"{words}; {unmoved}"
        return (
            f"the model does not describe {self._disagreeing} {numbers}; uncertainties of "
            f"{int(self.doubtful.sum())} of {len(self.moved)} values are too small"
        )

    @property
    def _disagreeing(self) -> str:
        """Which data the model does not describe."""
        found = [name for name, own in self.sets.items() if own.misfit]
        if not self.sets or len(found) == len(self.sets) > 1:
            return "the data" if not self.sets else f"any of the data sets ({listed(found)})"
        return f"the data '{listed(found)}'" if found else f"the data sets {listed(list(self.sets))} together"


def verdict_on(
    residue: Residue,
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
    found = Verdict(
        p=together(tests) if quality.degrees_of_freedom > 0 else float("nan"),
        tests=tests,
        p_low=too_small(residue) if free_scale is None else 1.0,
        reduced=quality.reduced,
        scale_free=free_scale is not None,
        moved=np.zeros(len(latent)) if moves is None or sigma is None else furthest(moves, sigma),
        trouble=trouble,
        excess=excess_of(residue.chi_square) if free_scale is None else float("nan"),
        sets={name: _on_set(residue, part, free_scale, places.get(name)) for name, part in residue.sets.items()},
    )
    if not found.misfit:
        return found
    if isinstance(place, DataPlaces) and residue.left is not None:
        return dataclasses.replace(found, where=worst_place(residue.left, place))
    return dataclasses.replace(found, where=_where_among(found.sets))


def _where_among(sets: Mapping[str, SetVerdict]) -> str:
    """The place in the set of data that is described worst, with its name; empty where none is known."""
    known = [(verdict.p, name) for name, verdict in sets.items() if verdict.where]
    return f"in {min(known)[1]}, {sets[min(known)[1]].where}" if known else ""


def _on_set(
    residue: Residue, own: Residue, free_scale: int | Sequence[int] | None, place: DataPlaces | None
) -> SetVerdict:
    """The verdict on one of several sets of data."""
    tests = tests_of_set(residue, own, free_scale)
    known = {name: p for name, p in tests.items() if np.isfinite(p)}
    found = SetVerdict(
        chi_square=float(own.chi_square.value),
        n_voxel=int(own.chi_square.size),
        expected=float(own.chi_square.mean),
        p=together(tests),
        worst=min(known, key=lambda name: known[name], default=""),
        excess=excess_of(chi_square_of_set(residue, own, free_scale)),
    )
    if not found.misfit or place is None or own.left is None:
        return found
    return dataclasses.replace(found, where=worst_place(own.left, place))
