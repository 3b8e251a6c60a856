"""How a source is painted: its line spread, method, velocities, and which bins it covers."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Bool
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.sections.nebular import YOUNG_STARS
from rubix_like.engine.cost import Work, rates_here
from rubix_like.engine.motion import LARGEST_STEP, FastParticles, Motion, plan_motion
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.engine.spectra.basis_size import basis_size
from rubix_like.errors import ConfigError
from rubix_like.instrument.detector import LineSpread, rest_window
from rubix_like.instrument.psf import PSF
from rubix_like.instrument.response import n_fine_bins, n_spread_products
from rubix_like.physics.templates import Templates
from rubix_like.physics.units import expect_positive

_DEFAULT_VELOCITY_LIMIT = 4000.0
_NAMED = "engine.method"
_WORTH = 0.005
"""Seconds per cube that `basis` must save."""

_VELOCITY_LADDER = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)


@named_arguments
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

    work = work_of(setup, spread, fast, OnBins.of_spectra(spread))

    def sized() -> Work:
        return work._replace(size=basis_size(templates, spread, engine.tolerance))

    chosen = choose_method(method or engine.method, limit, fast, work, sized)
    return SourcePlan(
        templates=templates,
        spread=spread,
        method=chosen.method,
        reason=chosen.reason,
        motion=chosen.motion,
        velocity_limit=velocity_limit,
        covered=_covered(spread, max(velocity_limit, chosen.motion.limit + LARGEST_STEP)),
    )


_MOVERS = ("stars", "gas", YOUNG_STARS)
"""Particles whose velocities are planned for, as `Setup.particles` has them."""


def velocity_limit_of(velocity_range: float | None, offset: float, kind: str, fast: FastParticles | None) -> float:
    """Largest |v_los| in km/s that the tables hold: the given range, or the particles' with room to spare."""
    if kind not in _MOVERS:
        raise ConfigError(f"kind: expected one of {', '.join(map(repr, _MOVERS))}, got {kind!r}")
    if velocity_range is not None:
        expect_positive(velocity_range, "velocity_range")
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


class OnBins(NamedTuple):
    """Of a source's templates: fine bins that one falls on, wavelengths that it is given at there, and bins that each
    vector of the basis is projected on."""

    n_fine: int
    n_rest: int
    n_reached: int | float
    n_spread: int = 0
    """Products by which the line spread makes bins of the fine bins of a spectrum."""

    @staticmethod
    def of_spectra(spread: LineSpread) -> "OnBins":
        """All bins, and the wavelengths that they see at rest."""
        bins = spread.bins
        edges = bins.to_vacuum(bins.edges) / (1.0 + spread.redshift)
        window = rest_window(spread.templates.rest_wavelength, edges, 0.0)
        return OnBins(
            n_fine_bins(bins, spread), window.stop - window.start, bins.n_wave, n_spread_products(bins, spread)
        )


def work_of(setup: Setup, spread: LineSpread, fast: FastParticles | None, on_bins: OnBins) -> Work:
    """The sizes that costs go by, for a basis of typical size."""
    instrument, painting, widths, psf = setup.instrument, setup.painting, setup.widths, setup.instrument.psf
    inner = instrument.footprint.painted(instrument.psf_reach, painting.cells)
    beyond = 0 if widths is None else widths.reach
    grid = SpaxelGrid(inner.painted(beyond), painting.deposit, widths)
    is_one = psf is not None and psf.nodes is None and setup.pipeline.blurs
    is_one = is_one and not setup.config.instrument.is_refracted
    acts_early = is_one or setup.psf_terms is not None
    return Work(
        n_particle=0 if fast is None else fast.number,
        n_corner=grid.n_corner,
        n_spaxel=grid.n_spaxel,
        n_template=spread.templates.axes.n_template,
        n_wave=instrument.bins.n_wave,
        n_fine=on_bins.n_fine,
        n_rest=on_bins.n_rest,
        n_reached=on_bins.n_reached,
        n_seen=instrument.footprint.n_element if acts_early else inner.n_element,
        n_together=inner.n_element,
        n_spread=on_bins.n_spread,
        n_refined=0 if widths is None else widths.n_product(inner.shape),
        psf=_psf_kind(psf if acts_early else None, is_one=is_one),
        is_wide=setup.config.engine.precision == "float64",
        n_psf=1 if instrument.psf_field is None else instrument.psf_field.n_place,
    )


def _psf_kind(psf: PSF | None, *, is_one: bool) -> Literal["none", "bands", "image", "terms"]:
    """How a PSF that acts before projection is applied; `is_one`: the same at all wavelengths."""
    if psf is None:
        return "none"
    if psf.is_separable:
        return "bands"
    return "image" if is_one else "terms"


class MethodChoice(NamedTuple):
    """The method of a source, the span of the velocity nodes of `basis`, and why it is this method."""

    method: str
    motion: Motion
    reason: str


def choose_method(
    method: str, velocity_range: float | None, fast: FastParticles | None, work: Work, sized: Callable[[], Work]
) -> MethodChoice:
    """The method, `auto` decided, and the span of the velocity nodes of `basis`.

    `sized` gives the `work` with the size of the basis, where that matters.

    `auto` is the cheaper of the two for each cube by the rates of `cost`, whatever is planned before the first one. It
    is `direct`, which is exact and plans little, where `basis` would save no more than some milliseconds, or where
    nothing says how fast the particles are; and `basis` where their number is not known.
    """
    if fast is None and velocity_range is None:
        if method == "basis":
            raise ConfigError(
                "engine.velocity_range: expected the largest |v_los| for method 'basis' in a pipeline that is built "
                "without a galaxy, got null; give it (e.g. 1000 km/s) or pass the galaxy to Pipeline.from_config"
            )
        return MethodChoice("direct", Motion(0.0, 0), "no galaxy to plan from" if method == "auto" else _NAMED)
    if method == "direct":
        return MethodChoice("direct", Motion(0.0, 0), _NAMED)
    motion = Motion(velocity_range or 0.0, 0)
    if fast is None:
        return MethodChoice("basis", motion, "no galaxy to plan from" if method == "auto" else _NAMED)
    if velocity_range is None:
        motion = plan_motion(fast, work)
    if method != "auto":
        return MethodChoice(method, motion, _NAMED)
    sizes, rates = sized(), rates_here()
    either = rates.cube_seconds(sizes)
    by_basis = either + rates.basis_seconds(sizes, motion.limit, motion.capacity)
    by_direct = either + rates.direct_seconds(sizes)
    reason = f"about {by_basis:.2g} s a cube by basis, {by_direct:.2g} s by direct"
    return MethodChoice("direct" if by_direct < by_basis + _WORTH else "basis", motion, reason)
