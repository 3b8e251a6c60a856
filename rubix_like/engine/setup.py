"""A run and each of its sources as the host knows them when stages and painters are built."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import PipelineSettings, RunConfig
from rubix_like.config.plug_ins import LINE_METHODS, METHODS
from rubix_like.engine.cost import Work, rates_here
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.smoothing import WidthClasses
from rubix_like.galaxy.alignment import Alignment
from rubix_like.instrument.detector import LineSpread
from rubix_like.instrument.field_psf import PSFTerms
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.painting import Painting
from rubix_like.physics.templates import LineTemplates, Templates
from rubix_like.runtime.notes import Note
from rubix_like.runtime.words import percent
from rubix_like.ssp import SSPLibrary

OUTLIER_LIGHT: float = 0.01
"""Particles with more than this share of the light are never left to the outliers' way."""

_CAPACITIES = (0, *(2**power for power in range(13)))
_WORTH = 0.8
"""Outliers are treated apart where that costs less than this share of the nodes for all."""

_LADDER = 50.0 * 2.0 ** (np.arange(38) / 4)

LARGEST_STEP: float = 200.0
"""Largest distance between velocity nodes in km/s: how far beyond the limit they may reach."""


class Motion(NamedTuple):
    """Velocity nodes span +-`limit` km/s; up to `capacity` faster particles are painted singly; `note`: to the user."""

    limit: float
    capacity: int
    note: str = ""


class FastParticles(NamedTuple):
    """The fastest of some particles and the light of all of them; the fastest of parts are those of the whole.

    `speed` and `light` (fast,) are the largest |v_los| (km/s) that particles can have, the fastest first and of equals
    the brightest, and roughly how bright they are on the detector; no more are kept than `plan_motion` may leave out.
    `number` and `total_light` are those of all; `fastest` the largest speed (km/s), whatever its direction.
    """

    speed: Float[ndarray, " fast"]
    light: Float[ndarray, " fast"]
    number: int
    total_light: float
    fastest: float

    @staticmethod
    def of(
        velocity: Float[ndarray, "particle 3"], speed: Float[ndarray, " particle"], light: Float[ndarray, " particle"]
    ) -> "FastParticles":
        """The motion of particles with these velocities, largest |v_los| (all km/s) and brightness."""
        fastest = float(np.linalg.norm(velocity, axis=1).max(initial=0.0))
        return FastParticles(*_fastest(speed, light), len(speed), float(light.sum()), fastest)

    @staticmethod
    def at_rest() -> "FastParticles":
        """The motion to plan for where there are no particles: of one that stands still."""
        return FastParticles(np.zeros(1), np.zeros(1), 1, 0.0, 0.0)

    def joined(self, other: "FastParticles") -> "FastParticles":
        """The motion of the particles of both."""
        kept = _fastest(np.concatenate([self.speed, other.speed]), np.concatenate([self.light, other.light]))
        number, light = self.number + other.number, self.total_light + other.total_light
        return FastParticles(*kept, number, light, max(self.fastest, other.fastest))


def _fastest(
    speed: Float[ndarray, " particle"], light: Float[ndarray, " particle"]
) -> tuple[Float[ndarray, " fast"], Float[ndarray, " fast"]]:
    number = _CAPACITIES[-1] + 1
    if len(speed) > number:
        place = len(speed) - number
        near = speed >= np.partition(speed, place)[place]
        speed, light = speed[near], light[near]
    order = np.lexsort((light, speed))[::-1][:number]
    return speed[order], light[order]


class _Span(NamedTuple):
    """A span of the nodes: its cost, how many particles may be left out, its limit (km/s), and the share of the light
    that is left out."""

    seconds: float
    capacity: int
    limit: float
    share: float


def plan_motion(fast: FastParticles, work: Work) -> Motion:
    """The cheapest span of the nodes, with a few fast particles left out of it, from a ladder of limits 19 % apart.

    One particle at 2000 km/s must not double the nodes; but particles with more than 1 % of the light are not outliers.
    """
    shares = np.concatenate([[0.0], np.cumsum(fast.light)]) / max(fast.total_light, np.finfo(float).tiny)
    ways = []
    for capacity in _CAPACITIES:
        if capacity < fast.number:
            limit = float(_LADDER[np.searchsorted(_LADDER, 1.05 * float(fast.speed[capacity]) + 10.0)])  # room to spare
            ways.append(_Span(rates_here().span_seconds(work, limit, capacity), capacity, limit, shares[capacity]))
    allowed = [way for way in ways if way.share <= OUTLIER_LIGHT]
    chosen = min(allowed)
    if chosen.seconds >= _WORTH * allowed[0].seconds:
        chosen = allowed[0]
    cheapest = min(way for way in ways if way.capacity <= max(1.0, OUTLIER_LIGHT * fast.number))
    if cheapest.seconds > _WORTH * chosen.seconds:
        return Motion(chosen.limit, chosen.capacity)
    which = "1 fast particle holds" if cheapest.capacity == 1 else f"{cheapest.capacity} fast particles hold"
    note = Note(
        "engine.fast_particles",
        f"{which} {percent(cheapest.share, 1)} of the light, too much to be treated as outliers: velocities "
        f"up to {chosen.limit:.0f} km/s instead of {cheapest.limit:.0f} km/s cost "
        f"{chosen.seconds / cheapest.seconds:.2g} times as much",
    )
    return Motion(chosen.limit, chosen.capacity, note)


@dataclass(frozen=True, eq=False)
class SourcePlan:
    """The plan by which one source is painted (`plan_source` makes it, for lines `plan_lines`).

    `method`: the painter's, never "auto", and the `reason` for it; `motion`: the span of the velocity nodes of `basis`;
    `velocity_limit`: largest |v_los| in km/s that a single particle's spectrum must be right for; `spread`: from the
    templates' resolution to the instrument's; `covered` (wave,): which detector bins the templates reach at all these
    velocities; `narrowest`: the smallest velocity_dispersion (km/s) that lines may be given; `unseen`: names of lines
    that do not reach the detector; `own`: anything else that the source's `plan` passes to its `build`.
    """

    templates: Templates | LineTemplates
    spread: LineSpread
    method: str
    reason: str
    motion: Motion
    velocity_limit: float
    covered: Bool[ndarray, " wave"]
    narrowest: float = 0.0
    unseen: tuple[str, ...] = ()
    own: Any = None
    step: float | None = None


@dataclass(frozen=True, eq=False)
class Setup:
    """Facts that all sources and stages of a run share, to look at when they are built (host only).

    `library`: the run's SSP library, for sources and products that are made of it; `luminosity_distance` in Mpc;
    `arcsec_per_kpc`: the scale on the sky there; `widths`: the width classes of the deposit `smoothed`; `painting`: the
    deposit and its cells; `particles`: the motion of each kind ("stars"; "young_stars" that ionise gas), where that is
    known; `psf_terms`: those of a PSF that follows wavelength and is the first stage of the cube; `deposit_reason`: why
    the deposit was taken; `alignment`: its `rotation` (3, 3) turns positions of the file to the galaxy's axes (in a
    training set, those of its first galaxy), None without alignment or galaxy; `notes`: sentences for the user;
    `sources`: the plans of the pipeline's sources by name, in its order (none while they are made).
    """

    config: RunConfig
    pipeline: PipelineSettings
    library: SSPLibrary
    instrument: Instrument
    luminosity_distance: float
    arcsec_per_kpc: float
    widths: WidthClasses | None
    painting: Painting
    particles: Mapping[str, FastParticles]
    notes: tuple[str, ...]
    sources: Mapping[str, SourcePlan] = field(default_factory=dict)
    psf_terms: PSFTerms | None = None
    deposit_reason: str = "asked for"
    alignment: Alignment | None = None

    @functools.cached_property
    def covered(self) -> Bool[ndarray, " wave"]:
        """The detector bins that the templates of every source reach."""
        return functools.reduce(np.logical_and, [plan.covered for plan in self.sources.values()])

    @functools.cached_property
    def line_spreads(self) -> dict[str, Float[ndarray, " wave"]]:
        """FWHM (Angstrom) of the line spread of each source by name: of lines the instrument's, of spectra no less."""
        wavelength = self.instrument.bins.wavelength
        return {name: plan.spread.widths(wavelength)[1] for name, plan in self.sources.items()}

    @property
    def lsf_fwhm(self) -> Float[ndarray, " wave"]:
        """FWHM (Angstrom) of the painted cube's line spread, that of the source with the widest one."""
        return functools.reduce(np.maximum, self.line_spreads.values())

    @property
    def narrower(self) -> dict[str, Float[ndarray, " wave"]]:
        """The `line_spreads` that are narrower than `lsf_fwhm` somewhere."""
        widest = self.lsf_fwhm
        return {name: fwhm for name, fwhm in self.line_spreads.items() if np.any(fwhm < widest * (1 - 1e-6))}


@named_arguments
def build_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's templates."""
    return METHODS.find(plan.method)(plan, setup)


@named_arguments
def build_line_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's lines (`plan_lines`)."""
    return LINE_METHODS.find(plan.method)(plan, setup)
