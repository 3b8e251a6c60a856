"""Exact integrals of piecewise linear spectra: Doppler-shifted over detector bins, and of photons below a limit."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.constants import PHOTON_ENERGY_AT_1_ANGSTROM
from rubix_like.runtime.mesh.bin_split import per_bin

_MAX_CELLS = 1 << 17
_SMALLEST_BLOCK = 8


class Rebinner(eqx.Module):
    """Takes spectra on a rest-frame grid to light in fine bins at any Doppler factor.

    With C the running integral of the piecewise linear S, the light in bin [e0, e1] of a source with Doppler factor D
    is C(e1 / D) - C(e0 / D): exact, and zero where the grid ends. No digits are lost in float32: wavelengths are kept
    as a rounded value and the rest of it (`_low`), so that an edge is known by its distance from the node below; a bin
    between two nodes is integrated there; and C is kept per small block of nodes. Which segment an edge falls into is
    read from a table over ln lambda, `cells`, and corrected by at most `n_steps` nodes.
    """

    rest_wavelength: Float[Array | ndarray, " rest"]
    rest_low: Float[Array | ndarray, " rest"]
    edges: Float[Array | ndarray, " fine_edge"] = eqx.field(metadata=per_bin())
    edges_low: Float[Array | ndarray, " fine_edge"] = eqx.field(metadata=per_bin())
    log_edges: Float[Array | ndarray, " fine_edge"] = eqx.field(metadata=per_bin())
    cells: Int[Array | ndarray, " cell"]
    log_start: Float[Array | ndarray, ""]
    cells_per_log: Float[Array | ndarray, ""]
    n_steps: int = eqx.field(static=True)
    block: int = eqx.field(static=True)

    @classmethod
    def build(cls, rest_wavelength: Float[ndarray, " rest"], edges: Float[ndarray, " fine_edge"]) -> "Rebinner":
        """Tables for nodes, and for bin edges as a source at D = 1 sees them (both vacuum Angstrom)."""
        log_nodes = np.log(rest_wavelength)
        span = log_nodes[-1] - log_nodes[0]
        n_cells = int(np.clip(np.ceil(span / np.diff(log_nodes).min()), 1, _MAX_CELLS))
        starts = log_nodes[0] + span * np.arange(n_cells + 1) / n_cells
        slack = 2e-6  # float32 rounding of ln lambda
        below = np.clip(np.searchsorted(log_nodes, starts - slack, side="right") - 1, 0, len(log_nodes) - 2)
        above = np.clip(np.searchsorted(log_nodes, starts[1:] + slack, side="right") - 1, 0, len(log_nodes) - 2)
        nodes, nodes_low = _in_two_parts(rest_wavelength)
        rounded_edges, edges_low = _in_two_parts(edges)
        return cls(
            rest_wavelength=nodes,
            rest_low=nodes_low,
            edges=rounded_edges,
            edges_low=edges_low,
            log_edges=np.log(edges),
            cells=below[:-1].astype(np.int32),
            log_start=np.asarray(log_nodes[0]),
            cells_per_log=np.asarray(n_cells / span),
            n_steps=max(1, int((above - below[:-1]).max())),
            block=_block(log_nodes, np.log(edges)),
        )

    def chosen(self, number: Int[ndarray, " chosen"]) -> "Rebinner":
        """A Rebinner with the edges of these numbers, in this order; between two equal ones there is no light."""
        names = ("edges", "edges_low", "log_edges")
        return dataclasses.replace(self, **{name: np.asarray(getattr(self, name))[number] for name in names})

    def light(
        self, spectra: Float[Array, "particle rest"], log_doppler: Float[Array, " particle"]
    ) -> Float[Array, "particle fine"]:
        """Light of each particle in each fine bin: integral of S(lambda / D) / D, in units of S times Angstrom.

        `log_doppler` is ln D relative to the edges: v/c where they are in the galaxy's rest frame. Differentiable in
        both.
        """
        return jax.vmap(self.light_of_one)(spectra, log_doppler)

    def light_of_one(self, spectrum: Float[Array, " rest"], log_doppler: Float[Array, ""]) -> Float[Array, " fine"]:
        """`light` of one particle; over many spectra with one `log_doppler` the edges are found once."""
        width = jnp.diff(jnp.asarray(self.rest_wavelength)) + jnp.diff(jnp.asarray(self.rest_low))
        edges = jnp.asarray(self.edges) + jnp.asarray(self.edges_low)
        shift = edges * jnp.expm1(-log_doppler)
        segment = self._segments(edges + shift, log_doppler)
        step = self._distance(segment, shift, width[-1])
        partial, total = self._running(spectrum, width)
        slope = (jnp.diff(spectrum) / width)[segment]
        value = spectrum[segment]
        running = partial[segment] + step * (value + 0.5 * step * slope)
        first, last = step[:-1], step[1:]
        within = (last - first) * (value[:-1] + 0.5 * (first + last) * slope[:-1])
        block = segment // self.block
        crossed = jnp.where(block[1:] > block[:-1], total[block[:-1]], jnp.zeros_like(within))
        return jnp.where(segment[1:] == segment[:-1], within, running[1:] - running[:-1] + crossed)

    def _segments(
        self, position: Float[Array, " fine_edge"], log_doppler: Float[Array, ""]
    ) -> Int[Array, " fine_edge"]:
        nodes, cells = jnp.asarray(self.rest_wavelength) + jnp.asarray(self.rest_low), jnp.asarray(self.cells)
        log_position = jnp.asarray(self.log_edges) - log_doppler
        cell = jnp.clip((log_position - self.log_start) * self.cells_per_log, 0, len(self.cells) - 1)
        segment = cells[cell.astype(jnp.int32)]
        last = len(self.rest_wavelength) - 2
        for _ in range(self.n_steps):
            beyond = (position >= nodes[segment + 1]) & (segment < last)
            segment = segment + beyond.astype(jnp.int32)
        return segment

    def _distance(
        self, segment: Int[Array, " fine_edge"], shift: Float[Array, " fine_edge"], last: Float[Array, ""]
    ) -> Float[Array, " fine_edge"]:
        """Angstrom from the node below to each shifted edge, within the grid (`last`: width of its last segment)."""
        coarse = jnp.asarray(self.edges) - jnp.asarray(self.rest_wavelength)[segment]
        fine = jnp.asarray(self.edges_low) - jnp.asarray(self.rest_low)[segment]
        step = coarse + (fine + shift)
        step = jnp.where(segment == 0, jnp.maximum(step, jnp.zeros_like(step)), step)
        return jnp.where(segment == len(self.rest_wavelength) - 2, jnp.minimum(step, last), step)

    def _running(
        self, spectrum: Float[Array, " rest"], width: Float[Array, " segment"]
    ) -> tuple[Float[Array, " padded"], Float[Array, " block"]]:
        """Running integral up to each node within its block of segments, and the integral over each block."""
        areas = 0.5 * (spectrum[1:] + spectrum[:-1]) * width
        n_blocks = -(-len(areas) // self.block)
        areas = jnp.pad(areas, (0, n_blocks * self.block - len(areas)))
        inclusive = jnp.cumsum(areas.reshape(n_blocks, self.block), axis=1)
        exclusive = jnp.pad(inclusive[:, :-1], ((0, 0), (1, 0)))
        return exclusive.reshape(-1), inclusive[:, -1]


def _in_two_parts(wavelength: Float[ndarray, " node"]) -> tuple[Float[ndarray, " node"], Float[ndarray, " node"]]:
    """The value that float32 can hold, and the rest."""
    rounded = wavelength.astype(np.float32).astype(np.float64)
    return rounded, wavelength - rounded


def _block(log_nodes: Float[ndarray, " rest"], log_edges: Float[ndarray, " fine_edge"]) -> int:
    """Nodes per block: more than any bin can hold at any shift, so that a bin crosses at most one block border."""
    widest = np.diff(log_edges).max()
    most = int((np.searchsorted(log_nodes, log_nodes + widest, side="right") - np.arange(len(log_nodes))).max())
    return max(_SMALLEST_BLOCK, most + 1)


def photons_below(
    limit: float, wavelength: Float[ndarray, " rest"], spectra: Float[ndarray, "*node rest"]
) -> Float[ndarray, "*node"]:
    """Photons per second at wavelengths (Angstrom) below `limit`, of spectra in erg/s/Angstrom.

    integral of lambda L_lambda d lambda / (h c), exact for spectra that are straight between their nodes. From the last
    node below the limit to the limit itself the spectrum is level: the next node may be beyond the Lyman edge.
    """
    inside = wavelength < limit
    nodes = np.append(wavelength[inside], limit)
    light = spectra[..., inside]
    light = np.concatenate([light, light[..., -1:]], axis=-1)
    low, high, first, second = nodes[:-1], nodes[1:], light[..., :-1], light[..., 1:]
    energy_times = (high - low) / 6.0 * (low * (2.0 * first + second) + high * (first + 2.0 * second))
    return energy_times.sum(axis=-1) / PHOTON_ENERGY_AT_1_ANGSTROM
