"""What the host knows of a run when its stages and painters are built."""

from dataclasses import dataclass

import numpy as np

from rubix_like.config import RunConfig
from rubix_like.engine.motion import Motion
from rubix_like.engine.smoothing import WidthClasses
from rubix_like.instrument.detector import LineSpread
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.painting import Painting
from rubix_like.ssp import SSPLibrary


@dataclass(frozen=True)
class Setup:
    """What a stage may look at when it is built (host only).

    `method`: the painter's, never "auto"; `motion`: what the velocity nodes of `basis` span; `velocity_limit`: largest
    |v_los| in km/s that a single particle's spectrum must be right for; `luminosity_distance` in Mpc; `widths`: the
    width classes of the deposit `smoothed`; `painting`: the deposit and its cells; `covered` (wave,): which
    detector bins the SSP library reaches; `notes`: sentences for the user.
    """

    config: RunConfig
    library: SSPLibrary
    instrument: Instrument
    spread: LineSpread
    method: str
    motion: Motion
    velocity_limit: float
    luminosity_distance: float
    widths: WidthClasses | None
    painting: Painting
    covered: np.ndarray
    notes: tuple[str, ...]
