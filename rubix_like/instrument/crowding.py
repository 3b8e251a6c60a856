"""Numbers of stars in a resolution element of the instrument, and the deposit that `auto` stands for by them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.config import EngineSettings, InstrumentSettings, PipelineSettings
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.places import found_at

AUTO: str = "auto"
"""The deposit that is chosen by the galaxy."""

ENOUGH: int = 100
"""Stars in a resolution element from which on points are painted: their number scatters by 10 %."""

_MOST_STARS = 0.9
_AXES = ((0, 1), (1, 2), (2, 0))
_STARS = "stars"


class Crowding(NamedTuple):
    """How many stars lie in every resolution element of the field, seen along each of the galaxy's three axes.

    So it does not depend on how the galaxy is turned. Numbers of parts of a galaxy add up exactly.
    """

    counts: Int[ndarray, "axis element"]

    @staticmethod
    def of(
        position: Float[ndarray, "particle 3"],
        instrument: InstrumentSettings,
        pipeline: PipelineSettings,
        arcsec_per_kpc: float,
    ) -> "Crowding":
        """The crowding of stars at `position` (kpc from the galaxy's centre), in squares of `element_side` that cover
        the field; what lies outside, or nowhere (NaN), is not counted."""
        side = element_side(instrument, pipeline)
        shape = [max(1, int(np.ceil(width / side - 1e-9))) for width in instrument.fov]
        places = np.asarray(position, dtype=np.float64).T * (arcsec_per_kpc / side)
        return Crowding(np.stack([_counted(places[first], places[second], *shape) for first, second in _AXES]))

    def joined(self, other: "Crowding") -> "Crowding":
        """The crowding of the stars of both."""
        return Crowding(self.counts + other.counts)

    @property
    def typical(self) -> float:
        """The median number in those elements, the fullest, that hold nine tenths of the stars; of the three views the
        one in the middle. Infinite where no star is in the field."""
        medians = []
        for fullest in -np.sort(-self.counts):
            held = int(np.searchsorted(np.cumsum(fullest), _MOST_STARS * fullest.sum())) + 1
            medians.append(float(np.median(fullest[:held])) if fullest.any() else np.inf)
        return float(np.median(medians))

    @property
    def is_sparse(self) -> bool:
        """Whether fewer than `ENOUGH` share an element."""
        return self.typical < ENOUGH


def paints_stars(pipeline: PipelineSettings) -> bool:
    """Whether stars are among the sources."""
    return any(source.name == _STARS for source in pipeline.paint)


def element_side(instrument: InstrumentSettings, pipeline: PipelineSettings) -> float:
    """Side (arcsec) of a square as large as the PSF's effective area, and no smaller than a spaxel.

    The area is 1 / (integral of P^2) (King 1983, PASP 95, 163): of a Gaussian 4 pi sigma^2. A PSF counts as a Gaussian
    of its FWHM, the narrowest where it has several; an image of one, and one of adaptive
    optics in the middle of the range, as it is.
    """
    psf, pixel_scale = instrument.psf, instrument.pixel_scale
    if psf is None or not pipeline.blurs:
        return pixel_scale
    if psf.kind == "image":
        area = np.inf
        for place in psf.every_place:
            images, side, _ = found_at("rubix_like.instrument.psf_images:load_psf_image")(place)
            light = images.sum(axis=(1, 2)) ** 2 / np.sum(images**2, axis=(1, 2))
            area = min(area, side**2 * float(light.min()))
    elif psf.kind == "adaptive":
        middle = (instrument.wavelength.start + instrument.wavelength.stop) / 2
        effective_area = found_at("rubix_like.instrument.psf_images:effective_area")
        area = min(effective_area(place.optics, middle) for place in psf.every_place)
    else:
        area = 4 * np.pi * (psf.narrowest / FWHM_PER_SIGMA) ** 2
    return max(pixel_scale, float(np.sqrt(area)))


class DepositChoice(NamedTuple):
    """The deposit of a run, why it was taken, and a note for the user."""

    deposit: str
    reason: str = "asked for"
    note: str = ""


def choose_deposit(
    engine: EngineSettings,
    instrument: InstrumentSettings,
    pipeline: PipelineSettings,
    crowding: Crowding | None,
    n_lacking: int,
) -> DepositChoice:
    """The deposit that is asked for; of `auto`, smoothed where fewer than `ENOUGH` stars share a resolution element
    (`Crowding.typical`), else nearest.

    `n_lacking`: how many particles have no smoothing length, without which none can be smoothed.
    """
    if engine.deposit != AUTO:
        return DepositChoice(engine.deposit)
    if not paints_stars(pipeline):
        return DepositChoice("nearest", "no stars are painted")
    if crowding is None:
        return DepositChoice("nearest", "no galaxy to count the stars of")
    if not crowding.is_sparse:
        return DepositChoice("nearest", "many stars in a resolution element")
    number, side = f"{crowding.typical:.3g}", element_side(instrument, pipeline)
    few = (
        f"half of the galaxy's resolution elements, {side:.3g} arcsec wide, hold {number} star particles or fewer "
        f"({ENOUGH} are enough)"
    )
    if n_lacking:
        words = (
            f"the galaxy looks grainy: {few}, and there are no smoothing lengths to smooth them by; read the galaxy by "
            f"the run's configuration, all at once (rl.load_galaxy(config), engine.slab: all), or give them"
        )
        reason = f"few stars in a resolution element ({number}), but no smoothing lengths"
        return DepositChoice("nearest", reason, Note("deposit.grainy", words, WARNING))
    words = (
        f"stars are smoothed by their smoothing lengths (engine.deposit: auto): {few}; engine.deposit: nearest paints "
        f"them as points"
    )
    reason = f"few stars in a resolution element ({number})"
    return DepositChoice("smoothed", reason, Note("deposit.smoothed", words))


def _counted(x: Float[ndarray, " particle"], y: Float[ndarray, " particle"], n_x: int, n_y: int) -> ndarray:
    column, row = np.floor(x + n_x / 2), np.floor(y + n_y / 2)
    inside = (column >= 0) & (column < n_x) & (row >= 0) & (row < n_y)
    element = np.where(inside, row * n_x + column, n_x * n_y).astype(np.int64)
    return np.bincount(element, minlength=n_x * n_y + 1)[:-1]
