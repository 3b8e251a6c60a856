"""How a source is painted: its line spread, method, velocities, and which bins it covers."""

from jaxtyping import Bool
from numpy import ndarray

from rubix_like.engine.cost import Work, rates_here
from rubix_like.engine.motion import LARGEST_STEP, FastParticles, Motion, plan_motion
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spaxels import CORNERS
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread
from rubix_like.instrument.response import n_fine_bins
from rubix_like.physics.templates import Templates

_DEFAULT_VELOCITY_LIMIT = 4000.0
_VELOCITY_LADDER = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)


def plan_source(
    setup: Setup,
    templates: Templates,
    kind: str,
    *,
    method: str | None = None,
    velocity_range: float | None = None,
) -> SourcePlan:
    """The plan of a source whose particles, of the `kind` "stars" or "gas", shine as these templates.

    `method` and `velocity_range` (km/s) are those of the section `engine` where not given. Without a velocity range
    particles whose velocities are not known in advance are painted by `direct`. Raises ConfigError where the detector
    lies wholly outside the templates, and ValueError for velocities beyond all bounds.
    """
    engine, observation = setup.config.engine, setup.config.observation
    limit = engine.velocity_range if velocity_range is None else velocity_range
    fast = setup.particles.get(kind)
    spread = LineSpread(setup.instrument.bins, templates, observation.redshift, setup.instrument.lsf)
    velocity_limit = velocity_limit_of(limit, observation.velocity_offset, kind, fast)
    chosen, motion = method_and_motion(method or engine.method, limit, fast, work_of(setup, spread, fast))
    return SourcePlan(
        templates=templates,
        spread=spread,
        method=chosen,
        motion=motion,
        velocity_limit=velocity_limit,
        covered=_covered(spread, max(velocity_limit, motion.limit + LARGEST_STEP)),
    )


def velocity_limit_of(velocity_range: float | None, offset: float, kind: str, fast: FastParticles | None) -> float:
    """Largest |v_los| in km/s that the tables hold: the given range, or the particles' with room to spare."""
    if velocity_range is not None:
        return velocity_range
    if fast is None:
        return _DEFAULT_VELOCITY_LIMIT
    needed = 1.2 * (fast.fastest + abs(offset))
    fitting = [limit for limit in _VELOCITY_LADDER if limit >= needed]
    if not fitting:
        raise ValueError(
            f"{kind}.velocity: expected speeds below {_VELOCITY_LADDER[-1] / 1.2:.0f} km/s, got "
            f"{needed / 1.2:.4g} km/s (with observation.velocity_offset); check the unit (km/s), or give "
            f"engine.velocity_range"
        )
    return fitting[0]


def _covered(spread: LineSpread, velocity_limit: float) -> Bool[ndarray, " wave"]:
    """Which detector bins the templates cover, line spread included, for every velocity up to the limit."""
    covered = spread.covered(-velocity_limit, velocity_limit)
    if not covered.any():
        bins, templates = spread.bins, spread.templates
        first, last = templates.covered
        stretch = 1.0 + spread.redshift
        raise ConfigError(
            f"instrument.wavelength: expected the detector to see {templates.name} "
            f"({first:.5g}-{last:.5g} Angstrom, at this redshift {first * stretch:.5g}-{last * stretch:.5g}) at "
            f"velocities up to {velocity_limit:g} km/s, got {bins.edges[0]:.5g}-{bins.edges[-1]:.5g} Angstrom; "
            f"change the instrument, the redshift or the templates"
        )
    return covered


def work_of(setup: Setup, spread: LineSpread, fast: FastParticles | None) -> Work:
    """The sizes that costs go by."""
    instrument, painting, widths = setup.instrument, setup.painting, setup.widths
    n_layer, n_shared, beyond = (1, 1, 0) if widths is None else (widths.n_layer, 2, widths.reach)
    return Work(
        n_particle=0 if fast is None else fast.number,
        n_corner=CORNERS[setup.config.engine.deposit] ** 2 * n_shared,
        n_spaxel=n_layer * instrument.footprint.painted(instrument.psf_reach, painting.cells).painted(beyond).n_element,
        n_template=spread.templates.axes.n_template,
        n_wave=instrument.bins.n_wave,
        n_fine=n_fine_bins(instrument.bins, spread),
    )


def method_and_motion(
    method: str, velocity_range: float | None, fast: FastParticles | None, work: Work
) -> tuple[str, Motion]:
    """The method, `auto` decided, and the span of the velocity nodes of `basis`.

    `auto` is the cheaper of the two by the rates of `cost`; `direct` where nothing says how fast the particles are.
    """
    unknown = fast is None and velocity_range is None
    if method == "basis" and unknown:
        raise ConfigError(
            "engine.velocity_range: expected the largest |v_los| for method 'basis' in a pipeline that is built "
            "without a galaxy, got null; give it (e.g. 1000 km/s) or pass the galaxy to Pipeline.from_config"
        )
    if method == "direct" or (method == "auto" and unknown):
        return "direct", Motion(0.0, 0)
    motion = Motion(velocity_range or 0.0, 0)
    if fast is not None and velocity_range is None:
        motion = plan_motion(fast, work)
    if method != "auto":
        return method, motion
    rates = rates_here()
    by_basis = rates.basis_seconds(work, motion.limit, motion.capacity)
    return ("direct" if fast is not None and rates.direct_seconds(work) < by_basis else "basis"), motion
