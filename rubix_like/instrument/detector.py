"""The instrument's line-spread function on the detector's wavelength bins (float64 on the host)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config import InstrumentSettings, LSFSettings
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.config.sections.products import LARGEST_DISPERSION
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.errors import ConfigError
from rubix_like.physics.gaussian import ENCLOSED_SIGMAS, split_variance
from rubix_like.physics.templates import LineTemplates, Templates
from rubix_like.runtime.mesh.bin_split import per_bin


@dataclass(frozen=True)
class LineSpread:
    """The Gaussian kernel that takes spectra made of templates, at redshift z, to the instrument's resolution.

    FWHM_kernel^2 = FWHM_inst(lambda_o)^2 - [(1 + z) FWHM_template(lambda_r)]^2 - pixel term, never negative, and
    FWHM_effective^2 = FWHM_kernel^2 + [(1 + z) FWHM_template]^2 + pixel term (Angstrom). The pixel term,
    step^2/12 x 2.3548^2, is there when the instrument's width was measured on its pixels. Lines have no intrinsic
    width: nothing is subtracted.
    """

    bins: WavelengthBins
    templates: Templates | LineTemplates
    redshift: float
    settings: LSFSettings | None

    def widths(self, wavelength: Float[ndarray, " wave"]) -> tuple[ndarray, ndarray, ndarray]:
        """FWHM (Angstrom) of the kernel, of the effective LSF, and of the instrument at wavelengths in the medium."""
        stretch = 1.0 + self.redshift
        rest = self.bins.to_vacuum(wavelength) / stretch
        fwhm = stretch * np.interp(rest, self.templates.rest_wavelength, self.templates.fwhm)
        if self.settings is None:
            return np.zeros_like(fwhm), fwhm, np.zeros_like(fwhm)
        step = self.bins.width_at(wavelength)
        pixel2 = FWHM_PER_SIGMA**2 * step**2 / 12 * self.settings.includes_pixel
        instrument = instrument_fwhm(self.settings, wavelength)
        kernel2 = np.maximum(instrument**2 - fwhm**2 - pixel2, 0.0)
        return np.sqrt(kernel2), np.sqrt(kernel2 + fwhm**2 + pixel2), instrument

    def covered(self, slowest: float, fastest: float) -> Bool[ndarray, " wave"]:
        """The detector bins that the templates cover, line spread included, at all velocities between two (km/s)."""
        bins, stretch = self.bins, 1.0 + self.redshift
        reach = ENCLOSED_SIGMAS * self.widths(bins.wavelength)[0] / FWHM_PER_SIGMA
        low, high = (bins.to_vacuum(edge) / stretch for edge in (bins.edges[:-1] - reach, bins.edges[1:] + reach))
        first, last = self.templates.covered
        return (low / np.exp(fastest / SPEED_OF_LIGHT) >= first) & (high / np.exp(slowest / SPEED_OF_LIGHT) <= last)


def rest_window(
    rest_wavelength: Float[ndarray, " rest"], edges: Float[ndarray, " fine_edge"], velocity_limit: float
) -> slice:
    """The nodes of templates between the detector's ends in the rest frame, widened by the velocity limit (km/s).

    At least two, also where the detector sees none of them.
    """
    stretch = np.exp(velocity_limit / SPEED_OF_LIGHT)
    first = np.searchsorted(rest_wavelength, edges[0] / stretch, side="right") - 1
    last = np.searchsorted(rest_wavelength, edges[-1] * stretch, side="left")
    start = min(max(int(first), 0), len(rest_wavelength) - 2)
    return slice(start, max(min(int(last), len(rest_wavelength) - 1), start + 1) + 1)


def least_line_width(instrument: InstrumentSettings) -> float:
    """Sigma (km/s) that lines of smooth components are painted with beside the line spread.

    It keeps the light in a bin smooth in the velocity: 0 where the line spread does (sigma of half a bin or more), else
    half of the widest bin, and at most the widest that lines are painted with.
    """
    bins = instrument.wavelength
    ends = np.array([bins.start, bins.stop])
    step = bins.widths(ends)
    if instrument.lsf is not None:
        square = (instrument_fwhm(instrument.lsf, ends) / FWHM_PER_SIGMA) ** 2
        square -= step**2 / 12 if instrument.lsf.includes_pixel else 0.0
        if np.all(square >= (0.5 * step) ** 2):
            return 0.0
    return min(float(np.max(0.5 * step / ends)) * SPEED_OF_LIGHT, LARGEST_DISPERSION)


_MAX_SUB = 4
_REACH_SIGMAS = 5.0
_MAX_REACH = 64
_SPAXELS_AT_ONCE = 8


class Response(eqx.Module):
    """The map from light in fine bins to the flux density in detector bins.

    `matrix[q, r, l]` (per Angstrom of the detector's medium) takes part r of bin l - reach + q to bin l.
    """

    matrix: Float[Array | ndarray, "block part wave"] = eqx.field(metadata=per_bin(2, pad="zero"))

    @property
    def n_fine(self) -> int:
        """Number of fine bins."""
        block, part, n_wave = self.matrix.shape
        return (n_wave + block - 1) * part

    def apply(self, light: Float[Array, "spaxel fine"]) -> Float[Array, "spaxel wave"]:
        """Flux density in detector bins (light unit per Angstrom of the medium) from light in fine bins.

        A few spaxels at a time: the working space does not grow with the field.
        """
        return lax.map(self._spectrum, light, batch_size=_SPAXELS_AT_ONCE)

    def _spectrum(self, light: Float[Array, " fine"]) -> Float[Array, " wave"]:
        block, part, n_wave = self.matrix.shape
        parts = light.reshape(-1, part).T
        matrix = jnp.asarray(self.matrix)
        terms = [parts[r, q : q + n_wave] * matrix[q, r] for q in range(block) for r in range(part)]
        return sum(terms[1:], start=terms[0])


class SpreadGeometry(eqx.Module):
    """The bins that the light of each fine bin may go to: the geometry of `spread_matrix`.

    `borders[b, r, q]` is the edge below detector bin q of the 2 reach + 1 that fine bin (b, r) can reach, and the last
    one's edge above, in fine bins from its centre; `cell` and `bin_width` are in Angstrom of the medium.
    """

    borders: Float[Array | ndarray, "extended part border"]
    cell: Float[Array | ndarray, "extended part"]
    bin_width: Float[Array | ndarray, " wave"]


class ResponsePlan(NamedTuple):
    """Edges of fine bins (vacuum Angstrom), and the map from them to the detector's bins (64-bit)."""

    fine_edges: Float[ndarray, " fine_edge"]
    response: Response


def plan_response(bins: WavelengthBins, spread: LineSpread) -> ResponsePlan:
    """Fine bins of half a kernel sigma, but not below 1/4 of a bin, and the map from them."""
    fine_edges, centre, geometry = bin_geometry(bins, *fineness(bins, spread))
    kernel = spread.widths(centre.reshape(-1))[0].reshape(centre.shape)
    response = Response(spread_matrix(kernel, geometry, np, scipy.special.ndtr))
    return ResponsePlan(bins.to_vacuum(fine_edges), response)


def bin_geometry(
    bins: WavelengthBins, n_sub: int, reach: int
) -> tuple[Float[ndarray, " fine_edge"], Float[ndarray, "extended part"], SpreadGeometry]:
    """Edges and centres (Angstrom of the medium) of bins cut into `n_sub`, from `reach` bins below the detector's first
    to as many above its last, and where light from them may go."""
    n_fine = (bins.n_wave + 2 * reach) * n_sub
    fine_edges = bins.at(np.arange(n_fine + 1) / n_sub - reach - 0.5)
    shape = (bins.n_wave + 2 * reach, n_sub)
    centre = (0.5 * (fine_edges[1:] + fine_edges[:-1])).reshape(shape)
    cell = np.diff(fine_edges).reshape(shape)
    edges = bins.at(np.arange(-2 * reach, bins.n_wave + 2 * reach + 1) - 0.5)
    within = np.arange(2 * reach + 2)[None, None, :] + np.arange(shape[0])[:, None, None]
    geometry = SpreadGeometry(
        borders=(edges[within] - centre[:, :, None]) / cell[:, :, None], cell=cell, bin_width=np.diff(bins.edges)
    )
    return fine_edges, centre, geometry


def fineness(bins: WavelengthBins, spread: LineSpread) -> tuple[int, int]:
    """(fine bins per bin, bins that light can reach on each side); raises ConfigError for a line spread too wide."""
    kernel, _, _ = spread.widths(bins.wavelength)
    in_bins = kernel / FWHM_PER_SIGMA / np.diff(bins.edges)
    widest = float(in_bins.max())
    if widest == 0:
        return 1, 0
    narrowest = float(in_bins[in_bins > 0].min())
    n_sub = int(np.clip(np.ceil(2.0 / narrowest), 2, _MAX_SUB))
    reach = int(np.ceil(_REACH_SIGMAS * max(widest, 1.0 / n_sub)))
    if reach > _MAX_REACH:
        raise ConfigError(
            f"instrument.lsf: expected a line spread of at most {_MAX_REACH / _REACH_SIGMAS:.0f} bins (sigma), got "
            f"{widest:.4g} bins; use a larger instrument.wavelength.step or a narrower lsf"
        )
    if bins.at(np.array([-reach - 0.5]))[0] <= 0:
        raise ConfigError(
            f"instrument.wavelength.start: expected wavelengths above 0 also {reach} bins below the first one (light "
            f"is spread from there), got a first bin at {bins.first:g} Angstrom; start later"
        )
    return n_sub, reach


def spread_matrix(
    kernel: Float[Array | ndarray, "extended part"],
    geometry: SpreadGeometry,
    namespace: Any = jnp,
    cumulative: Callable[[Any], Any] = jax.scipy.special.ndtr,
) -> Float[Array | ndarray, "block part wave"]:
    """Share of each fine bin's light that each detector bin collects, over the detector bin's width (1/Angstrom).

    Differentiable in `kernel` (FWHM in Angstrom of the medium, per fine bin). The same formula serves the host in
    64 bits: pass numpy and scipy's cumulative normal distribution.
    """
    blocks = geometry.borders.shape[2] - 1
    reach, n_wave = (blocks - 1) // 2, len(geometry.bin_width)
    share, width = split_variance((kernel / FWHM_PER_SIGMA / geometry.cell) ** 2, namespace)
    spread_light = namespace.diff(cumulative(geometry.borders / width[:, :, None]), axis=-1)
    spread_light = spread_light / spread_light.sum(axis=-1, keepdims=True)
    stays = (np.arange(blocks) == reach).astype(kernel.dtype)[None, None, :]
    collected = share[:, :, None] * spread_light + (1.0 - share)[:, :, None] * stays
    # matrix[q, r, l] gathers extended bin l + q (detector bin l - reach + q), which reaches l at offset 2 reach - q
    bin_index = np.arange(n_wave)[:, None] + np.arange(blocks)[None, :]
    gathered = collected[bin_index, :, (blocks - 1 - np.arange(blocks))[None, :]]
    return namespace.moveaxis(gathered, 0, 2) / geometry.bin_width[None, None, :]
