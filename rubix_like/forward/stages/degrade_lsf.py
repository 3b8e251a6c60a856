"""Stage `degrade_lsf`: a cube at a lower spectral resolution, as when it is matched to another instrument."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray
from pydantic import ValidationError
from scipy.special import ndtr

from rubix_like.config import LSFSettings
from rubix_like.config.messages import explain
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.meta import SPREAD_FROM_BEYOND
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_noisy, refuse_options
from rubix_like.instrument.response import bin_geometry, spread_matrix
from rubix_like.physics.gaussian import reach_of
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.words import percent

_SPAXELS_AT_ONCE = 64


class DegradeLSF(AbstractCubeStage):
    """Spectra convolved with a Gaussian that takes the effective LSF to a wider one, bins included.

    FWHM_kernel^2 = FWHM_wanted(lambda)^2 - FWHM_effective(lambda)^2 at each detector bin; its variance is exact however
    narrow it is against a bin, and light is conserved. Beyond the detector's ends spectra go on as their last bin; what
    is spread from there is flagged. Before `noise`, so that the noise stays that of each voxel.

    `weights[q, l]` takes the light of bin l - reach + q to the flux density of bin l.
    """

    weights: Float[Array | ndarray, "block wave"] = eqx.field(metadata=per_bin(pad="zero"))
    lsf_fwhm: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    bits: Int[Array | ndarray, " wave"] = eqx.field(metadata=per_bin(pad="zero"))
    n_sharper: Int[Array | ndarray, ""]
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "DegradeLSF":
        """The options are those of `instrument.lsf`: fwhm, polynomial, or wavelength with fwhm or resolving_power."""
        refuse_options("degrade_lsf", options, tuple(LSFSettings.model_fields))
        wanted = _wanted(options)
        bins = setup.instrument.bins
        effective = setup.lsf_fwhm
        width = np.diff(bins.edges)
        kernel = np.sqrt(np.maximum(instrument_fwhm(wanted, bins.wavelength) ** 2 - effective**2, 0.0))
        reach = reach_of(float((kernel / width).max()) / FWHM_PER_SIGMA)
        if reach >= bins.n_wave:
            raise ConfigError(
                f"pipeline: stage 'degrade_lsf': expected a line spread narrower than the detector's {bins.n_wave} "
                f"bins, got one that reaches over {reach} bins; take a smaller fwhm or more of instrument.wavelength"
            )
        padded = np.pad(kernel, reach, mode="edge")[:, None]
        _, _, geometry = bin_geometry(bins, 1, reach)
        matrix = spread_matrix(padded, geometry, np, ndtr)[:, 0, :]
        beyond = np.arange(bins.n_wave)
        light_from_beyond = (kernel > 0) & (np.minimum(beyond, beyond[::-1]) < 3.0 * kernel / width / FWHM_PER_SIGMA)
        return cls(
            weights=matrix * np.pad(width, reach, mode="edge")[np.arange(2 * reach + 1)[:, None] + beyond[None, :]],
            lsf_fwhm=np.sqrt(kernel**2 + effective**2),
            bits=np.where(light_from_beyond, SPREAD_FROM_BEYOND, 0).astype(np.int32),
            n_sharper=np.asarray(np.sum(kernel == 0), dtype=np.int32),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube at the lower resolution; raises ConfigError after noise."""
        why = "it would correlate the noise of neighbouring bins, which no variance can say"
        refuse_noisy("degrade_lsf", cube, why)
        weights = jnp.asarray(self.weights)
        n_block, n_wave = weights.shape
        longer = cube.split.with_neighbours(cube.flux, n_block // 2)

        def spread(spectrum: Float[Array, " longer"]) -> Float[Array, " wave"]:
            def add(total: Array, own: tuple[Array, Array]) -> tuple[Array, None]:
                start, row = own
                return total + row * lax.dynamic_slice(spectrum, (start,), (n_wave,)), None

            starts = jnp.arange(n_block, dtype=jnp.int32)
            return lax.scan(add, jnp.zeros_like(spectrum, shape=(n_wave,)), (starts, weights))[0]

        flux = lax.map(spread, longer, batch_size=_SPAXELS_AT_ONCE)
        return eqx.tree_at(lambda c: c.flux, cube, flux)

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """It acts along wavelength."""
        return

    def report(self) -> StageReport:
        """The new effective LSF, the flagged ends, and where the cube was coarser already."""
        widths, sharper = np.asarray(self.lsf_fwhm), int(self.n_sharper)
        note = (
            f"degrade_lsf: the cube is already coarser than wanted in {percent(sharper / len(widths))} of the bins, "
            f"which stay as they are; the file's LSF table holds the effective width"
        )
        return StageReport(
            wave_bits=np.asarray(self.bits), lsf_fwhm=widths, meta={"lsf_degraded": True}, notes=(note,) * (sharper > 0)
        )


def _wanted(options: Mapping[str, Any]) -> LSFSettings:
    try:
        return LSFSettings.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(explain(error, LSFSettings, "pipeline: stage 'degrade_lsf'")) from error
