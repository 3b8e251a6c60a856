"""The detector's response after the Doppler shift: line spread, then the exact mean over each bin.

Light is first collected, exactly, in *fine* bins: each detector bin (and some beyond both ends) cut into `n_sub` parts.
The line spread and the collection in detector bins are then one linear map, the same for all particles, so it acts once
on the summed cube. Without an LSF the fine bins are the detector's.
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.detector import LineSpread, WavelengthBins
from rubix_like.errors import ConfigError
from rubix_like.gaussian import split_variance

_MAX_SUB = 4
_REACH_SIGMAS = 5.0
_MAX_REACH = 64
_SPAXELS_AT_ONCE = 8


class Response(eqx.Module):
    """The map from light in fine bins to the flux density in detector bins.

    `matrix[q, r, l]` (per Angstrom of the detector's medium) takes part r of bin l - reach + q to bin l.
    """

    matrix: Float[Array | ndarray, "block part wave"]

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


@dataclass(frozen=True)
class ResponsePlan:
    """What the host works out for a detector: the response and the vacuum edges of its fine bins (Angstrom)."""

    response: Response
    fine_edges: Float[ndarray, " fine_edge"]


def plan_response(bins: WavelengthBins, spread: LineSpread) -> ResponsePlan:
    """Fine bins of half a kernel sigma, but not below 1/4 of a bin, and the map from them."""
    kernel, _, _ = spread.widths(bins.wavelength)
    width = np.diff(bins.edges)
    in_bins = kernel / FWHM_PER_SIGMA / width
    widest = float(in_bins.max())
    if widest == 0:
        n_sub, reach = 1, 0
    else:
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
    n_fine = (bins.n_wave + 2 * reach) * n_sub
    index = np.arange(n_fine + 1) / n_sub - reach - 0.5
    fine_edges = bins.at(index)
    matrix = _matrix(bins, spread, fine_edges, n_sub, reach)
    return ResponsePlan(Response(matrix), bins.to_vacuum(fine_edges))


def _matrix(
    bins: WavelengthBins, spread: LineSpread, fine_edges: Float[ndarray, " fine_edge"], n_sub: int, reach: int
) -> Float[ndarray, "block part wave"]:
    """Share of each fine bin's light that each detector bin collects, over the detector bin's width."""
    centre = 0.5 * (fine_edges[1:] + fine_edges[:-1])
    cell = np.diff(fine_edges)
    kernel, _, _ = spread.widths(centre)
    share, width = split_variance((kernel / FWHM_PER_SIGMA / cell) ** 2, np)
    blocks = 2 * reach + 1
    # collecting[b, q] and so on: detector bin b - reach + q' that fine bin (b, r) shines into, b over extended bins
    edges = bins.at(np.arange(-2 * reach, bins.n_wave + 2 * reach + 1) - 0.5)
    shape = (bins.n_wave + 2 * reach, n_sub)
    centre, scale, share = (x.reshape(shape) for x in (centre, width * cell, share))
    offsets = np.arange(blocks + 1)[None, None, :] + np.arange(shape[0])[:, None, None]
    cumulative = ndtr((edges[offsets] - centre[:, :, None]) / scale[:, :, None])
    spread_light = np.diff(cumulative, axis=-1)
    spread_light /= spread_light.sum(axis=-1, keepdims=True)
    collected = share[:, :, None] * spread_light
    collected[:, :, reach] += 1.0 - share
    # matrix[q, r, l] gathers extended bin l + q (detector bin l - reach + q), which reaches l at offset 2 reach - q
    bin_index = np.arange(bins.n_wave)[:, None] + np.arange(blocks)[None, :]
    gathered = collected[bin_index, :, (blocks - 1 - np.arange(blocks))[None, :]]
    return np.moveaxis(gathered, 0, 2) / np.diff(bins.edges)
