"""The emission lines of a smooth component: how bright each is, and how they share its light."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

Scalar = Float[Array | ndarray, ""]


class LineRow(NamedTuple):
    """One line of a component: `line` (a name, or vacuum Angstrom at rest) among all of its `wavelengths`; whether a
    fainter line from the same upper level comes with it; whether its brightness is a flux or a luminosity."""

    line: str | float
    wavelengths: tuple[str | float, ...]
    doublets: bool
    is_flux: bool


class LineLight(eqx.Module):
    """Lines of a component, of which either the `flux` of the first (1e-20 erg/s/cm2) or its `luminosity` (Lsun) is
    given, and the `ratios` of all others to it.

    `width` (km/s): sigma that each emitter's lines are painted with; its velocity has the rest of the dispersion.
    """

    flux: Scalar | None
    luminosity: Scalar | None
    ratios: Float[Array, " other"]
    width: Scalar
    wavelengths: tuple[str | float, ...] = eqx.field(static=True)
    doublets: bool = eqx.field(static=True)

    @property
    def rows(self) -> tuple[LineRow, ...]:
        """Its lines, in the order of `wavelengths`."""
        is_flux = self.flux is not None
        return tuple(LineRow(own, self.wavelengths, self.doublets, is_flux) for own in self.wavelengths)

    def shared(self, share: Float[Array | ndarray, " point"]) -> Float[Array, "point line"]:
        """How bright each point is in each line, for shares of the light that add up to 1."""
        first = self.luminosity if self.flux is None else self.flux
        assert first is not None  # checked when the settings were read
        of_lines = first * jnp.concatenate([jnp.ones_like(self.ratios, shape=(1,)), self.ratios])
        return jnp.asarray(share)[:, None] * of_lines[None, :].astype(share.dtype)
