"""Spectra of free-form populations on a detector, with a Gaussian distribution of velocities."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.sections.instrument import LSFSettings
from rubix_like.constants import FWHM_PER_SIGMA, SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.engine.motion import Motion
from rubix_like.engine.setup import SourcePlan
from rubix_like.engine.spectra.detector_view import seen, window_of
from rubix_like.engine.spectra.spectral_basis import find_basis
from rubix_like.engine.spectra.velocity_nodes import node_velocity, plan_nodes
from rubix_like.instrument.detector import LineSpread
from rubix_like.physics import bspline
from rubix_like.ssp import SSPLibrary

_TOLERANCE = 1e-4
"""rms error of a template on the basis spectra, relative to its mean."""

_STEP = 0.6
"""Distance of velocity nodes in standard deviations of the narrowest lines."""

_STEPS = (10.0, 60.0)
"""Limits of that, km/s."""

_REACH, _N_PLACE = 5.0, 121
"""Standard deviations of the velocities that are summed over, and in how many places."""

LARGEST_SIGMA: float = 500.0
LARGEST_VELOCITY: float = 1000.0
"""km/s that the tables hold."""


class BinTemplates(NamedTuple):
    """Spectra of the nodes: sum_r coefficients[k, r] sum_j L_j spectra[j, r], L_j the shares of the velocity nodes.

    `spectra` in 1e-20 erg/s/cm2/Angstrom per Msun at birth; `covered`: bins that the templates reach.
    """

    spectra: Float[Array | ndarray, "velocity rank wave"]
    coefficients: Float[Array | ndarray, "node rank"]
    step: Float[Array | ndarray, ""]
    covered: Bool[Array | ndarray, " wave"]

    def basis(self, velocity: Float[Array, ""], sigma: Float[Array, ""]) -> Float[Array, "rank wave"]:
        """The basis spectra with velocities normal about `velocity` with `sigma` (km/s); smooth in both."""
        n_node = self.spectra.shape[0]
        place = jnp.linspace(-_REACH, _REACH, _N_PLACE)
        share = jnp.exp(-0.5 * place**2)
        coordinate = (velocity + sigma * place) / self.step + n_node // 2
        first, weights = bspline.deposit(coordinate, n_node)
        index = first[:, None] + jnp.arange(bspline.SUPPORT, dtype=first.dtype)[None, :]
        shares = jnp.zeros(n_node, weights.dtype).at[index].add(weights * (share / share.sum())[:, None])
        return jnp.tensordot(shares, self.spectra, 1)


def make_templates(
    library: SSPLibrary,
    log_age: Float[ndarray, " age"],
    metallicity: Float[ndarray, " metal"],
    bins: WavelengthBins,
    lsf: LSFSettings | None,
    redshift: float,
    luminosity_distance: float,
) -> BinTemplates:
    """The templates of all nodes, metallicity first and age fastest; on the host, in 64 bits."""
    templates = library.templates()
    spread = LineSpread(bins, templates, redshift, lsf)
    limit = LARGEST_VELOCITY + _REACH * LARGEST_SIGMA
    covered = spread.covered(-limit, limit)
    plan = SourcePlan(
        templates, spread, "basis", "populations of bins", Motion(limit, 0), velocity_limit=limit, covered=covered
    )
    window = window_of(plan)
    z, age = np.meshgrid(np.log10(metallicity), log_age, indexing="ij")
    own = {"metallicity": jnp.asarray(z.reshape(-1)), "age": jnp.asarray(age.reshape(-1))}
    corners = templates.axes.corners(tuple(own[name] for name in templates.axes.names))
    table = np.einsum("kc,kcw->kw", np.asarray(corners.weight, float), window.templates[np.asarray(corners.index)])
    at_rest = seen(window, table, np.zeros(1))[0]
    found = find_basis(table, window.rest_wavelength, at_rest, _TOLERANCE)
    widths = spread.widths(bins.wavelength)[1] / FWHM_PER_SIGMA / bins.wavelength * SPEED_OF_LIGHT
    nodes = plan_nodes(limit, float(np.clip(_STEP * widths.min(), *_STEPS)))
    at_nodes = seen(window, found.spectra, node_velocity(nodes))
    factor = SOLAR_LUMINOSITY_AT_1_MPC / luminosity_distance**2
    spectra = factor * np.einsum("jk,krw->jrw", bspline.prefilter(nodes.n_node), at_nodes)
    return BinTemplates(spectra, found.coefficients, np.asarray(nodes.step, float), covered)
