"""What the host knows of a run, and of each of its sources, when stages and painters are built."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import PipelineSettings, RunConfig
from rubix_like.config.plug_ins import LINE_METHODS, METHODS
from rubix_like.engine.motion import FastParticles, Motion
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.smoothing import WidthClasses
from rubix_like.instrument.detector import LineSpread
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf_terms import PSFTerms
from rubix_like.physics.templates import LineTemplates, Templates
from rubix_like.ssp import SSPLibrary


@dataclass(frozen=True, eq=False)
class SourcePlan:
    """How one source is painted (`plan_source` makes it, of lines `plan_lines`).

    `method`: the painter's, never "auto", and the `reason` for it; `motion`: what the velocity nodes of `basis` span;
    `velocity_limit`: largest |v_los| in km/s that a single particle's spectrum must be right for; `spread`: from the
    templates' resolution to the instrument's; `covered` (wave,): which detector bins the templates reach at all these
    velocities; `narrowest`: of lines, the smallest velocity_dispersion (km/s) that they may be given; `unseen`: names
    of lines that do not reach the detector; `own`: what else the source's `plan` made for its `build`.
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
    """What all sources and stages of a run share, to look at when they are built (host only).

    `pipeline`: what its lists name; `library`: the run's SSP library, for sources and products that are made of it;
    `luminosity_distance` in Mpc; `widths`: the width classes of the deposit `smoothed`; `painting`: the deposit and its
    cells; `particles`: how fast those of each kind are ("stars"; "young_stars" that ionise gas), where that is known;
    `psf_terms`: those of a PSF that follows wavelength and is the first stage of the cube; `deposit_reason`: why the
    deposit was taken; `notes`: sentences for the user;
    `sources`: the plans of the pipeline's sources by name, in its order (none while they are made).
    """

    config: RunConfig
    pipeline: PipelineSettings
    library: SSPLibrary
    instrument: Instrument
    luminosity_distance: float
    widths: WidthClasses | None
    painting: Painting
    particles: Mapping[str, FastParticles]
    notes: tuple[str, ...]
    sources: Mapping[str, SourcePlan] = field(default_factory=dict)
    psf_terms: PSFTerms | None = None
    deposit_reason: str = "asked for"

    @property
    def covered(self) -> Bool[ndarray, " wave"]:
        """Which detector bins the templates of every source reach."""
        return functools.reduce(np.logical_and, [plan.covered for plan in self.sources.values()])

    @property
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
        """Those of `line_spreads` that are narrower than `lsf_fwhm` somewhere."""
        widest = self.lsf_fwhm
        return {name: own for name, own in self.line_spreads.items() if np.any(own < widest * (1 - 1e-6))}


@named_arguments
def build_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's templates."""
    return METHODS.find(plan.method)(plan, setup)


@named_arguments
def build_line_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's lines (`plan_lines`)."""
    return LINE_METHODS.find(plan.method)(plan, setup)
