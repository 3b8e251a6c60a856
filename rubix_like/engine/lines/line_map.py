"""Lines at velocity nodes as the detector sees them, computed under jit: their width is a parameter."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config.sections.lines import LARGEST_DISPERSION
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.spaxels import Images
from rubix_like.engine.spectra.coefficient_map import AbstractCoefficientMap, Projection, projected
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.device_layout import DeviceLayout
from rubix_like.runtime.mesh.mesh import varying

_VALUES_AT_ONCE = 1 << 22
"""Numbers (lines at nodes, bins) of the spaxels that are projected at once."""


class LineMap(AbstractCoefficientMap):
    """The map from coefficients, (velocity node, basis line ratio) flattened to one axis, to lines exact in every bin.

    Line l at node j is a Gaussian in wavelength about c with sigma^2 = `spread`^2 + `stretch`^2 (`thermal`^2 +
    `velocity_dispersion`^2); a bin holds the difference of the error functions at its borders over its width.
    As for spectra, a node holds the B-spline's coefficient (`prefilter`), not the value. Each line is projected
    in a window of bins of its own, around all its nodes; bins of other devices are left out.

    | field | shape | unit |
    |---|---|---|
    | bin_number | (wave,) | numbers of the detector's bins that are held |
    | start | (line,) | number of each window's first bin; windows may reach beyond the detector |
    | border | (line, border) | borders of the window's bins from the line at rest, Angstrom of the medium |
    | per_width | (line, window) | 1 / bin width, 1 / Angstrom |
    | ends | (line, 2) | the detector's ends from the line at rest |
    | shift | (line, velocity) | the line at each node from the line at rest |
    | spread, stretch | (line, velocity) | sigma of the line spread, Angstrom; c / c0, Angstrom per km/s |
    | thermal | (line,) | km/s |
    | loading | (rank, line) | flux (1e-20 erg/s/cm2) of each line per unit of each basis line ratio |
    | velocity_dispersion | scalar | km/s, from `narrowest` to 500; lines of any other width are NaN |
    """

    bin_number: Int[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    start: Int[Array | ndarray, " line"]
    border: Float[Array | ndarray, "line border"]
    per_width: Float[Array | ndarray, "line window"]
    ends: Float[Array | ndarray, "line 2"]
    shift: Float[Array | ndarray, "line velocity"]
    spread: Float[Array | ndarray, "line velocity"]
    stretch: Float[Array | ndarray, "line velocity"]
    thermal: Float[Array | ndarray, " line"]
    loading: Float[Array | ndarray, "rank line"]
    prefilter: Float[Array | ndarray, "velocity velocity"]
    nodes: VelocityNodes
    narrowest: Float[Array | ndarray, ""]
    velocity_dispersion: Float[Array | ndarray, ""]

    @property
    def n_coefficient(self) -> int:
        """Nodes times rank."""
        return self.nodes.n_node * self.loading.shape[0]

    @property
    def n_wave(self) -> int:
        """Bins that are held."""
        return len(self.bin_number)

    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """All of them."""
        return coefficients

    def spectra(self) -> Projection:
        """The projection line by line, a few spaxels at a time: no matrix of all lines in all bins is made."""
        response, loading = self._responses(), jnp.asarray(self.loading)
        at_once = max(1, _VALUES_AT_ONCE // (self.nodes.n_node * loading.shape[1] + self.n_wave))

        @jax.checkpoint
        def of_one(coefficients: Float[Array, " coefficient"]) -> Float[Array, " wave"]:
            by_line = _product(coefficients.reshape(self.nodes.n_node, -1), loading)
            return self._added(by_line, response)

        return lambda coefficients: lax.map(of_one, coefficients, batch_size=at_once)

    def moments(self) -> Float[Array, "coefficient 2"]:
        """The moments, from the share of each line that falls on the detector."""
        place = (jnp.asarray(self.ends)[:, None, :] - jnp.asarray(self.shift)[:, :, None]) / self._sigma()[:, :, None]
        seen = jnp.diff(ndtr(place), axis=2)[:, :, 0]
        light = _product(seen.T, jnp.asarray(self.loading).T)
        number = jnp.arange(self.nodes.n_node) - self.nodes.n_node // 2
        velocity = number.astype(light.dtype) * self.nodes.step
        both = [_product(jnp.asarray(self.prefilter), own) for own in (light, velocity[:, None] * light)]
        return jnp.stack([own.reshape(-1) for own in both], axis=1)

    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """The projection, after or before the spaxels are seen."""
        return projected(self.spectra(), kept, spatial, by_terms=by_terms)

    def of_own_bins(self, layout: DeviceLayout) -> "LineMap":
        """The map to these bins only."""
        return dataclasses.replace(self, bin_number=layout.own_bins(jnp.asarray(self.bin_number)))

    def padded(self, n_padded: int) -> "LineMap":
        """The map with bins beyond the detector's last appended."""
        return dataclasses.replace(self, bin_number=np.arange(n_padded, dtype=np.int32))

    def _sigma(self) -> Float[Array, "line velocity"]:
        """Sigma (Angstrom) of each line at each node; NaN for a velocity_dispersion outside the planned range."""
        own = jnp.asarray(self.velocity_dispersion)
        within = (own >= self.narrowest * (1 - 1e-5)) & (own <= LARGEST_DISPERSION * (1 + 1e-5))
        moving = jnp.asarray(self.thermal) ** 2 + own**2
        variance = jnp.asarray(self.spread) ** 2 + jnp.asarray(self.stretch) ** 2 * moving[:, None]
        return jnp.where(within, jnp.sqrt(variance), jnp.full_like(variance, jnp.nan))

    def _responses(self) -> Float[Array, "line velocity window"]:
        """Flux density (1 / Angstrom) of a line of flux 1 in its window, for the spline's coefficient at each node."""
        distance = jnp.asarray(self.border)[:, None, :] - jnp.asarray(self.shift)[:, :, None]
        light = jnp.diff(ndtr(distance / self._sigma()[:, :, None]), axis=2)
        density = light * jnp.asarray(self.per_width)[:, None, :]
        prefilter = jnp.asarray(self.prefilter)
        return jnp.einsum("jk,lkb->ljb", prefilter, density, precision=lax.Precision.HIGHEST)

    def _added(
        self, by_line: Float[Array, "velocity line"], response: Float[Array, "line velocity window"]
    ) -> Float[Array, " wave"]:
        """The sum of all lines in the own bins; margins as wide as a window take the light beyond them."""
        n_window, first = response.shape[2], jnp.asarray(self.bin_number)[0]
        place = jnp.clip(jnp.asarray(self.start) - first + n_window, 0, self.n_wave + n_window)

        def add(flux: Float[Array, " wide"], one: tuple[Any, ...]) -> tuple[Float[Array, " wide"], None]:
            place, own, response = one
            window = lax.dynamic_slice_in_dim(flux, place, n_window) + _product(own, response)
            return lax.dynamic_update_slice_in_dim(flux, window, place, 0), None

        empty = jnp.zeros(self.n_wave + 2 * n_window, by_line.dtype)
        flux, _ = lax.scan(add, varying(empty, by_line, response, first), (place, by_line.T, response))
        return flux[n_window : n_window + self.n_wave]


def _product(left: Float[Array, "..."], right: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
