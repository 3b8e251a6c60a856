"""Project rest-frame spectra onto the detector at a velocity: a pure, differentiable function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.instrument.response import Response, ResponsePlan, SpreadGeometry, spread_matrix
from rubix_like.physics.rebin import Rebinner

_SPECTRA_AT_ONCE = 64


class Detection(eqx.Module):
    """What a detector does to spectra on the nodes of a rest-frame window.

    `redshift` and `kernel` (FWHM of the line spread per fine bin, Angstrom of the medium) may be changed and
    differentiated; the rebinner's edges hold for `reference_redshift`.
    """

    rebinner: Rebinner
    geometry: SpreadGeometry
    kernel: Float[Array | ndarray, "extended part"]
    redshift: Float[Array | ndarray, ""]
    reference_redshift: Float[Array | ndarray, ""]

    @classmethod
    def build(cls, rest_wavelength: Float[ndarray, " rest"], plan: ResponsePlan, redshift: float) -> "Detection":
        """For nodes of templates (vacuum Angstrom) and the fine bins of a planned response."""
        return cls(
            rebinner=Rebinner.build(rest_wavelength, plan.fine_edges / (1.0 + redshift)),
            geometry=plan.geometry,
            kernel=plan.kernel,
            redshift=np.asarray(redshift),
            reference_redshift=np.asarray(redshift),
        )


def detect(
    detection: Detection, spectra: Float[Array, "row rest"], velocity: Float[Array, " velocity"]
) -> Float[Array, "velocity row wave"]:
    """Luminosity density per detector bin (unit of `spectra`, per Angstrom of the medium) of sources at `velocity`.

    D = (1 + z) exp(v / c), line spread, exact mean over each bin, as for single particles (`direct`).
    """
    return detect_by(
        Response(spread_matrix(jnp.asarray(detection.kernel), detection.geometry)), detection, spectra, velocity
    )


def detect_by(
    response: Response,
    detection: Detection,
    spectra: Float[Array, "row rest"],
    velocity: Float[Array, " velocity"],
) -> Float[Array, "velocity row wave"]:
    """`detect` with a line spread that was worked out before."""
    stretch = jnp.log1p(detection.redshift) - jnp.log1p(detection.reference_redshift)

    def at(own: Float[Array, ""]) -> Float[Array, "row wave"]:
        log_doppler = own / SPEED_OF_LIGHT + stretch
        light = lax.map(
            lambda spectrum: detection.rebinner.light_of_one(spectrum, log_doppler),
            spectra,
            batch_size=_SPECTRA_AT_ONCE,
        )
        return response.apply(light)

    return lax.map(at, velocity)


def projection_matrix(
    detection: Detection,
    spectra: Float[Array, "rank rest"],
    velocity: Float[Array, " velocity"],
    prefilter: Float[Array, "velocity velocity"],
    smooth: Bool[Array, " wave"],
    luminosity_distance: Float[Array, ""],
) -> Float[Array, "velocity rank wave"]:
    """Flux density (1e-20 erg/s/cm2/Angstrom) in detector bins per unit of each basis spectrum at each velocity node.

    Node j holds the B-spline's coefficient, not its value: sum_j w_j(v) M_j is the spectrum at v. In bins that are not
    `smooth` in velocity (at the templates' ends) it holds the value, which a spline would overshoot. Differentiable in
    the redshift and the line spread (`detection`) and in the luminosity distance (Mpc).
    """
    return project(detect(detection, spectra, velocity), prefilter, smooth, luminosity_distance)


def project(
    seen: Float[Array, "velocity rank wave"],
    prefilter: Float[Array, "velocity velocity"],
    smooth: Bool[Array, " wave"],
    luminosity_distance: Float[Array, ""],
) -> Float[Array, "velocity rank wave"]:
    """`projection_matrix` of basis spectra that were seen at the nodes before."""
    splined = jnp.einsum("jk,krl->jrl", prefilter, seen, precision=lax.Precision.HIGHEST)
    factor = SOLAR_LUMINOSITY_AT_1_MPC / luminosity_distance**2
    return factor * jnp.where(smooth[None, None, :], splined, seen)


detect_compiled = jax.jit(detect)
detect_by_compiled = jax.jit(detect_by)
project_compiled = jax.jit(project)
projection_matrix_compiled = jax.jit(projection_matrix)
