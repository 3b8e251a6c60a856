"""The plan of a source of lines: its line spread, method, velocities and width."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.sections.products import LARGEST_DISPERSION
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.engine.cost import BasisSize, Work
from rubix_like.engine.setup import FastParticles, Setup, SourcePlan
from rubix_like.engine.source_planning import OnBins, choose_method, velocity_limit_of, work_of
from rubix_like.engine.spectra.attenuation import FactoredDust, factored_lines
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread
from rubix_like.physics import air
from rubix_like.physics.templates import LineTemplates, layers_of

LINE_REACH: float = 5.6
"""Sigmas on either side of a line within which it is painted: 2e-8 of its light is beyond."""


def rounded_up(n_bin: int) -> int:
    """A window's bins, rounded up so that similar runs share compilations."""
    return -(-n_bin // 16) * 16


class LinePlaces(NamedTuple):
    """Lines on the detector at some velocities: centres, and sigma of the line spread (Angstrom of the medium)."""

    centre: Float[ndarray, "velocity line"]
    spread: Float[ndarray, "velocity line"]


@dataclass(frozen=True, eq=False)
class LineTracks:
    """Lines (vacuum Angstrom at rest) with thermal widths (km/s), through an instrument's line spread at a redshift.

    At the velocity v a line is a Gaussian in wavelength on the detector about c = lambda (1 + z) exp(v / c0), brought
    into the detector's medium, with sigma^2 = sigma_LSF(c)^2 + (c / c0)^2 (thermal^2 + velocity_dispersion^2).
    """

    spread: LineSpread
    wavelength: Float[ndarray, " line"]
    thermal: Float[ndarray, " line"]

    @classmethod
    def of(cls, templates: LineTemplates, spread: LineSpread) -> "LineTracks":
        """The tracks of all lines of a table."""
        return cls(spread, templates.wavelength, templates.thermal)

    @property
    def bins(self) -> WavelengthBins:
        """The detector's bins."""
        return self.spread.bins

    def chosen(self, which: Bool[ndarray, " line"]) -> "LineTracks":
        """The tracks of some lines."""
        return LineTracks(self.spread, self.wavelength[which], self.thermal[which])

    def at(self, velocity: Float[ndarray, " velocity"]) -> LinePlaces:
        """The lines at velocities in km/s."""
        stretch = (1.0 + self.spread.redshift) * np.exp(velocity / SPEED_OF_LIGHT)
        vacuum = (stretch[:, None] * self.wavelength[None, :]).reshape(-1)
        centre = air.to_air(vacuum) if self.bins.medium == "air" else vacuum
        kernel, _, _ = self.spread.widths(centre)
        shape = len(velocity), len(self.wavelength)
        return LinePlaces(centre.reshape(shape), kernel.reshape(shape) / FWHM_PER_SIGMA)

    def sigma(self, placed: LinePlaces, dispersion: float) -> Float[ndarray, "velocity line"]:
        """Standard deviation (Angstrom) of lines with a velocity_dispersion (km/s)."""
        moved = placed.centre / SPEED_OF_LIGHT
        return np.sqrt(placed.spread**2 + moved**2 * (self.thermal**2 + dispersion**2))

    def windows(self, velocity: Float[ndarray, " velocity"]) -> tuple[Int[ndarray, " line"], Int[ndarray, " line"]]:
        """The first and last bin (of a detector without ends) that each line reaches at any of these velocities."""
        placed = self.at(velocity)
        reach = LINE_REACH * self.sigma(placed, LARGEST_DISPERSION)
        low = self.bins.place(np.maximum((placed.centre - reach).min(axis=0), np.finfo(float).tiny))
        high = self.bins.place((placed.centre + reach).max(axis=0))
        return np.floor(low + 0.5).astype(np.int32), np.floor(high + 0.5).astype(np.int32)

    def on_detector(self, velocity: Float[ndarray, " velocity"]) -> Bool[ndarray, " line"]:
        """The lines that reach the detector at any of these velocities."""
        first, last = self.windows(velocity)
        return (last >= 0) & (first < self.bins.n_wave)


FAINT_LINE: float = 1e-2
"""Relative to Hb, or to the brightest line without it: the error of fainter lines is relative to this brightness."""

_BALMER = "Hb"


class LineRatios(NamedTuple):
    """table[k, l] = sum_r coefficients[k, r] loading[r, l], within `error` of the larger of each entry and `FAINT_LINE`
    times its template's reference."""

    coefficients: Float[ndarray, "template rank"]
    loading: Float[ndarray, "rank line"]
    error: float


def reference_light(table: Float[ndarray, "template line"], lines: tuple[str, ...]) -> Float[ndarray, " template"]:
    """Light that a template's faint lines are compared with (unit of `table`): Hb, or the brightest line without it."""
    brightest = table.max(axis=1, initial=0.0)
    if _BALMER not in lines:
        return brightest
    balmer = table[:, lines.index(_BALMER)]
    return np.where(balmer > 0, balmer, brightest)


def find_ratios(
    table: Float[ndarray, "template line"], reference: Float[ndarray, " template"], tolerance: float
) -> LineRatios:
    """The fewest basis line ratios within the tolerance, at most as many as there are templates or lines (exact).

    Each template is divided by its reference, and each line by a level (the root of its harmonic mean square) that
    gives weight to templates in which it is faint. Singular values of that table are added until each line of each
    template is within the tolerance.
    """
    n_template, n_line = table.shape
    most = min(n_template, n_line)
    exact = LineRatios(*((table, np.eye(n_line)) if n_line == most else (np.eye(n_template), table)), 0.0)
    lit = reference > 0
    if most == 1 or not lit.any():
        return exact
    scale = np.where(lit, reference, 1.0)
    shape = table / scale[:, None]
    floor = np.maximum(shape, FAINT_LINE)
    level = 1.0 / np.sqrt((1.0 / floor[lit] ** 2).mean(axis=0))
    left, values, right = np.linalg.svd(shape / level, full_matrices=False)
    for rank in range(1, most):
        coefficients, loading = left[:, :rank] * values[:rank], right[:rank] * level
        error = float((np.abs(coefficients @ loading - shape) / floor)[lit].max())
        if error <= tolerance:
            return LineRatios(scale[:, None] * coefficients, loading, error)
    return exact


def factored_dust_of(
    templates: LineTemplates, wavelength: Float[ndarray, " line"], tolerance: float
) -> FactoredDust | None:
    """The dust in front of lines at these wavelengths (vacuum Angstrom) as a few functions of A(V); None without."""
    layers = layers_of(templates)
    if layers is None:
        return None
    return factored_lines(layers(wavelength), float(np.asarray(templates.axes.largest_a_v)), tolerance)


LEAST_STEP: float = 0.5
"""Smallest distance between velocity nodes in km/s."""

_STEP_OF_SIGMA = 0.6
_ERROR_FUNCTIONS = 2
_TOO_NARROW = "lines too narrow for velocity nodes"
"""In each bin of a particle's line, over wavelengths that a spectrum has in a bin."""


@named_arguments
def plan_lines(
    setup: Setup,
    templates: LineTemplates,
    kind: str,
    *,
    narrowest: float,
    method: str | None = None,
    velocity_range: float | None = None,
) -> SourcePlan:
    """The plan of a source whose particles, of the `kind` "stars" or "gas", shine in these lines.

    `narrowest`: the smallest velocity_dispersion (km/s) that the velocity nodes of `basis` are planned for. `method`
    and `velocity_range` (km/s) are those of the section `engine` where not given. All bins are covered: there is no
    light between lines. Raises ConfigError where the detector sees no line, and as `plan_source`.
    """
    engine, observation = setup.config.engine, setup.config.observation
    if not narrowest >= 0:
        raise ConfigError(f"narrowest: expected a width of 0 km/s or more, got {narrowest!r}")
    limit = engine.velocity_range if velocity_range is None else velocity_range
    fast = setup.particles.get(kind)
    spread = LineSpread(setup.instrument.bins, templates, observation.redshift, setup.instrument.lsf)
    velocity_limit = velocity_limit_of(limit, observation.velocity_offset, kind, fast)
    tracks = LineTracks.of(templates, spread)
    seen = _seen(tracks, templates, velocity_limit)
    step = node_step(tracks, velocity_limit, narrowest, engine.tolerance)
    work = _work(setup, fast, templates, tracks, seen, step)
    wanted = _method_for(method or engine.method, step, narrowest)
    chosen = choose_method(wanted, limit, fast, work, lambda: work)
    reason = chosen.reason if wanted == (method or engine.method) else _TOO_NARROW
    return SourcePlan(
        templates=templates,
        spread=spread,
        method=chosen.method,
        reason=reason,
        motion=chosen.motion,
        velocity_limit=velocity_limit,
        covered=np.ones(setup.instrument.bins.n_wave, bool),
        narrowest=narrowest,
        unseen=tuple(name for name, is_seen in zip(templates.lines, seen, strict=True) if not is_seen),
    )


def sees_line(setup: Setup, templates: LineTemplates, kind: str) -> bool:
    """Whether some line reaches the detector at a velocity that is planned for, so that `plan_lines` can be called."""
    observation = setup.config.observation
    fast = setup.particles.get(kind)
    limit = velocity_limit_of(setup.config.engine.velocity_range, observation.velocity_offset, kind, fast)
    spread = LineSpread(setup.instrument.bins, templates, observation.redshift, setup.instrument.lsf)
    return bool(_on_detector(LineTracks.of(templates, spread), limit).any())


def lines_of(plan: SourcePlan) -> LineTemplates:
    """The lines of a plan; raises TypeError for one of spectra."""
    if isinstance(plan.templates, LineTemplates):
        return plan.templates
    raise TypeError(f"plan: expected lines (plan_lines), got {plan.templates.name} (take build_painter)")


_METHODS = ("auto", "basis", "direct")


def node_step(tracks: LineTracks, limit: float, narrowest: float, tolerance: float) -> float:
    """km/s between velocity nodes for lines that are seen at up to +-`limit` km/s.

    The step is 0.6 of the narrowest line's sigma, the bin's included: a cubic spline then errs by 1.5e-3 of a line's
    highest bin, and by less than 1e-5 of its flux, centre and width. The step never exceeds the sigma without the bin,
    which bins much wider than a line would hide. A tolerance below 1e-3 shortens it: the error goes as the step's
    fourth power.
    """
    velocity = np.array([-limit, 0.0, limit])
    tracks = tracks.chosen(tracks.on_detector(velocity))
    placed = tracks.at(velocity)
    sigma = tracks.sigma(placed, narrowest)
    width = tracks.bins.at(tracks.bins.place(placed.centre) + 1.0) - placed.centre
    total = np.sqrt(sigma**2 + width**2 / 12)
    step = np.minimum(_STEP_OF_SIGMA * total, sigma) / placed.centre * SPEED_OF_LIGHT
    return float(step.min()) * min(1.0, (tolerance / 1e-3) ** 0.25)


def narrowest_for(setup: Setup, templates: LineTemplates, velocity_dispersion: float) -> float:
    """The smallest velocity_dispersion (km/s) to plan nodes for, in a run with this one.

    It is 0, so that any width can follow, where line spread and thermal motion are wide enough for nodes; else half of
    the run's.
    """
    spread = LineSpread(setup.instrument.bins, templates, setup.config.observation.redshift, setup.instrument.lsf)
    tolerance = setup.config.engine.tolerance
    tracks = LineTracks.of(templates, spread)
    is_wide = tracks.on_detector(np.zeros(1)).any() and node_step(tracks, 0.0, 0.0, tolerance) >= LEAST_STEP
    return 0.0 if is_wide else 0.5 * velocity_dispersion


def _work(
    setup: Setup,
    fast: FastParticles | None,
    templates: LineTemplates,
    tracks: LineTracks,
    seen: Bool[ndarray, " line"],
    step: float,
) -> Work:
    """The sizes that costs go by, of those lines that are seen; they are projected line by line, each in its window."""
    tracks, tolerance = tracks.chosen(seen), setup.config.engine.tolerance
    ratios = find_ratios(templates.table[:, seen], reference_light(templates.table, templates.lines), tolerance)
    rank, n_line = ratios.coefficients.shape[1], len(tracks.wavelength)
    dust = factored_dust_of(templates, tracks.wavelength, tolerance)
    size = BasisSize(rank, step) if dust is None else BasisSize(n_line, step, rank, len(dust.parts))
    first, last = tracks.windows(np.zeros(1))
    n_bin = int(np.sum(last - first + 1))
    bins = OnBins(n_bin, _ERROR_FUNCTIONS * n_bin, n_bin / size.rank + n_line)
    return work_of(setup, tracks.spread, fast, bins)._replace(size=size)


def _method_for(method: str, step: float, narrowest: float) -> str:
    """The method; for lines too narrow for nodes `auto` becomes `direct`, and `basis` raises ConfigError."""
    if method not in _METHODS:
        raise ConfigError(f"method: expected one of {', '.join(map(repr, _METHODS))}, got {method!r}")
    if method == "direct":
        return method
    if step >= LEAST_STEP:
        return method
    if method == "auto":
        return "direct"
    raise ConfigError(
        f"engine.method: expected lines wide enough for velocity nodes {LEAST_STEP:g} km/s apart for method "
        f"'{method}', got lines (velocity_dispersion from {narrowest:g} km/s, thermal motion and instrument.lsf) that "
        f"need {step:.2g} km/s; use direct, a larger velocity_dispersion or an lsf"
    )


def _seen(tracks: LineTracks, templates: LineTemplates, velocity_limit: float) -> Bool[ndarray, " line"]:
    """Which lines reach the detector; raises ConfigError unless some do."""
    seen = _on_detector(tracks, velocity_limit)
    if seen.any():
        return seen
    bins, centre = tracks.bins, tracks.at(np.zeros(1)).centre[0]
    raise ConfigError(
        f"instrument.wavelength: expected the detector to see one of {templates.name} (at this redshift from "
        f"{centre.min():.6g} to {centre.max():.6g} Angstrom), got {bins.edges[0]:.6g}-{bins.edges[-1]:.6g} Angstrom; "
        f"change the instrument, the redshift or the lines"
    )


def _on_detector(tracks: LineTracks, velocity_limit: float) -> Bool[ndarray, " line"]:
    return tracks.on_detector(np.array([-velocity_limit, 0.0, velocity_limit]))
