"""How a source of lines is painted: its line spread, method, velocities and width."""

import numpy as np

from rubix_like.engine.lines.line_tracks import LineTracks
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.source_planning import method_and_motion, velocity_limit_of, work_of
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread
from rubix_like.physics.line_templates import LineTemplates


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

    `narrowest`: the smallest velocity_dispersion (km/s) that they may be given, which the velocity nodes of `basis` are
    planned for. `method` and `velocity_range` (km/s) are those of the section `engine` where not given. All bins are
    covered: there is no light between lines. Raises ConfigError where the detector sees no line, and as `plan_source`.
    """
    engine, observation = setup.config.engine, setup.config.observation
    limit = engine.velocity_range if velocity_range is None else velocity_range
    fast = setup.particles.get(kind)
    spread = LineSpread(setup.instrument.bins, templates, observation.redshift, setup.instrument.lsf)
    velocity_limit = velocity_limit_of(limit, observation.velocity_offset, kind, fast)
    tracks = LineTracks.of(templates, spread)
    _check_seen(tracks, templates, velocity_limit)
    first, last = tracks.windows(np.zeros(1))
    work = work_of(setup, spread, fast)._replace(n_fine=int(np.sum(last - first + 1)))
    chosen, motion = method_and_motion(method or engine.method, limit, fast, work)
    return SourcePlan(
        templates=templates,
        spread=spread,
        method=chosen,
        motion=motion,
        velocity_limit=velocity_limit,
        covered=np.ones(setup.instrument.bins.n_wave, bool),
        narrowest=narrowest,
    )


def _check_seen(tracks: LineTracks, templates: LineTemplates, velocity_limit: float) -> None:
    """Raise ConfigError unless some line reaches the detector."""
    if tracks.on_detector(np.array([-velocity_limit, 0.0, velocity_limit])).any():
        return
    bins, seen = tracks.bins, tracks.at(np.zeros(1)).centre[0]
    raise ConfigError(
        f"instrument.wavelength: expected the detector to see one of {templates.name} (at this redshift from "
        f"{seen.min():.6g} to {seen.max():.6g} Angstrom), got {bins.edges[0]:.6g}-{bins.edges[-1]:.6g} Angstrom; "
        f"change the instrument, the redshift or the lines"
    )
