"""How a source of lines is painted: its line spread, method, velocities and width."""

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.engine.cost import BasisSize, Work
from rubix_like.engine.lines.line_ratios import factored_dust_of, find_ratios, reference_light
from rubix_like.engine.lines.line_tracks import LineTracks
from rubix_like.engine.motion import FastParticles
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.source_planning import OnBins, choose_method, velocity_limit_of, work_of
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread
from rubix_like.physics.templates import LineTemplates

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
    """The smallest velocity_dispersion (km/s) to plan nodes for, where a run's own is this one.

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
    own, tolerance = tracks.chosen(seen), setup.config.engine.tolerance
    ratios = find_ratios(templates.table[:, seen], reference_light(templates.table, templates.lines), tolerance)
    rank = ratios.coefficients.shape[1]
    size = BasisSize(rank, step)
    dust = factored_dust_of(templates, own.wavelength, tolerance)
    if dust is not None:
        size = BasisSize(len(own.wavelength), step, rank, len(dust.parts))
    first, last = own.windows(np.zeros(1))
    n_bin = int(np.sum(last - first + 1))
    bins = OnBins(n_bin, _ERROR_FUNCTIONS * n_bin, n_bin / size.rank + len(own.wavelength))
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
