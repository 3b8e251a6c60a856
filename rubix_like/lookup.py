"""Look-up of a star's spectrum in the table of simple stellar populations."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int


class Corners(eqx.Module):
    """The four templates around each particle: lower indices and the fraction of the way to the next node."""

    metal: Int[Array, " particle"]
    age: Int[Array, " particle"]
    metal_fraction: Float[Array, " particle"]
    age_fraction: Float[Array, " particle"]


class TemplateTable(eqx.Module):
    """SSP spectra on a rest-frame window, with the axes that they are looked up on.

    `spectra` (metal, age, rest) in Lsun per vacuum Angstrom per initial Msun; `log_age` log10 yr; `log_metallicity`
    log10 of the metal mass fraction.
    """

    spectra: Float[Array | np.ndarray, "metal age rest"]
    log_age: Float[Array | np.ndarray, " age"]
    log_metallicity: Float[Array | np.ndarray, " metal"]

    def corners(self, log_age: Float[Array, " particle"], metallicity: Float[Array, " particle"]) -> Corners:
        """Bilinear position in (log10 age, log10 Z), limited to the table's edges (zero gradient beyond them)."""
        age, age_fraction = bracket(log_age, jnp.asarray(self.log_age))
        lowest = 10.0 ** (self.log_metallicity[0] - 1.0)  # keeps the logarithm and its gradient finite at Z = 0
        metal, metal_fraction = bracket(jnp.log10(jnp.maximum(metallicity, lowest)), jnp.asarray(self.log_metallicity))
        return Corners(metal=metal, age=age, metal_fraction=metal_fraction, age_fraction=age_fraction)

    def spectra_at(self, corners: Corners) -> Float[Array, "particle rest"]:
        """Spectra per initial Msun, bilinear between the four templates of each particle."""
        m, a = corners.metal, corners.age
        young = self._between_metals(m, a, corners.metal_fraction)
        old = self._between_metals(m, jnp.minimum(a + 1, len(self.log_age) - 1), corners.metal_fraction)
        fraction = corners.age_fraction[:, None]
        return (1 - fraction) * young + fraction * old

    def _between_metals(self, metal: Array, age: Array, fraction: Array) -> Float[Array, "particle rest"]:
        spectra = jnp.asarray(self.spectra)
        next_metal = jnp.minimum(metal + 1, len(self.log_metallicity) - 1)
        return (1 - fraction[:, None]) * spectra[metal, age] + fraction[:, None] * spectra[next_metal, age]

    def outside_age(self, log_age: Float[Array, " particle"]) -> Bool[Array, " particle"]:
        """Which ages lie outside the table and are taken at its edge."""
        return (log_age < self.log_age[0]) | (log_age > self.log_age[-1])

    def outside_metallicity(self, metallicity: Float[Array, " particle"]) -> Bool[Array, " particle"]:
        """Which metallicities lie outside the table (by more than rounding) and are taken at its edge."""
        slack = 1e-6
        low, high = 10.0 ** self.log_metallicity[0], 10.0 ** self.log_metallicity[-1]
        return (metallicity < low * (1 - slack)) | (metallicity > high * (1 + slack))


def bracket(
    value: Float[Array, " particle"], nodes: Float[Array, " node"]
) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
    """Lower node and fraction of the way to the next one, limited to the first and the last node (0 for one node)."""
    if len(nodes) == 1:
        return jnp.zeros(value.shape, jnp.int32), jnp.zeros_like(value)
    limited = jnp.clip(value, nodes[0], nodes[-1])
    index = jnp.clip(jnp.searchsorted(nodes, lax.stop_gradient(limited), side="right") - 1, 0, len(nodes) - 2)
    low = nodes[index]
    return index, (limited - low) / (nodes[index + 1] - low)
