"""Light profiles: surface density in the plane of a component, face-on, not normalised."""

import functools
from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.components.declared import parameter

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

length = functools.partial(parameter, "kpc", moves=True, gt=0)
"""A length in kpc that moves the light on the sky."""


class AbstractLight(eqx.Module):
    """A surface density over R / `scale`; only ratios matter, since the component's mass scales it.

    `scale` (kpc) is the length that the quadrature points stretch with: a smooth function of the parameters.
    """

    @property
    @abstractmethod
    def scale(self) -> Scalar:
        """kpc; 0 for a point."""

    @abstractmethod
    def surface(self, place: Places) -> Places:
        """The surface density at R / scale, >= 0."""


class Exponential(AbstractLight):
    """exp(-R / `scale_length`).

    Freeman (1970, ApJ 160, 811).
    """

    profile: ClassVar[str] = "exponential"
    scale_length: Scalar = length("Scale length of the exponential.", role="scale_length")

    @property
    def scale(self) -> Scalar:
        """The scale length."""
        return self.scale_length

    def surface(self, place: Places) -> Places:
        """The exponential."""
        return jnp.exp(-place)


class Truncated(AbstractLight):
    """An exponential with another scale length beyond a radius.

    exp(-R / h) (1 + exp(a (R - R_b)))^((1 / h - 1 / h_out) / a), with a = 5 / h_out (Erwin, Pohlen & Beckman 2008,
    AJ 135, 20, eq. 5).
    """

    profile: ClassVar[str] = "truncated"
    scale_length: Scalar = length("Scale length of the exponential.", role="scale_length")
    truncation_radius: Scalar = length("Where the profile turns to the outer scale length.")
    outer_scale_length: Scalar = length("Scale length beyond the truncation.")

    @property
    def scale(self) -> Scalar:
        """The inner scale length."""
        return self.scale_length

    def surface(self, place: Places) -> Places:
        """The broken exponential."""
        radius, sharpness = place * self.scale_length, 5 / self.outer_scale_length
        beyond = jnp.logaddexp(0.0, sharpness * (radius - self.truncation_radius))
        slope = (1 / self.scale_length - 1 / self.outer_scale_length) / sharpness
        return jnp.exp(-place + slope * beyond)


class Sersic(AbstractLight):
    """Sersic's law, in the plane of the component.

    exp(-b ((R / R_e)^(1/n) - 1)), with b of Ciotti & Bertin (1999, A&A 352, 447, eq. 18) such that half of the light
    is within R_e.
    """

    profile: ClassVar[str] = "sersic"
    effective_radius: Scalar = length("Radius within which half of the light is, face-on.", role="half_light_radius")
    index: Scalar = parameter(
        "", "Sersic's n: 1 for an exponential, 4 for de Vaucouleurs' law.", moves=True, ge=0.5, le=8
    )

    @property
    def scale(self) -> Scalar:
        """The effective radius."""
        return self.effective_radius

    def surface(self, place: Places) -> Places:
        """Sersic's law."""
        return jnp.exp(-sersic_b(self.index) * (jnp.maximum(place, 1e-12) ** (1 / self.index) - 1))


class Ring(AbstractLight):
    """A ring that is Gaussian across.

    exp(-(R - R_0)^2 / 2 w^2).
    """

    profile: ClassVar[str] = "ring"
    radius: Scalar = length("Radius of the ring.", role="width")
    width: Scalar = length("Standard deviation across the ring.")

    @property
    def scale(self) -> Scalar:
        """The ring's radius."""
        return self.radius

    def surface(self, place: Places) -> Places:
        """The Gaussian about the ring's radius."""
        return jnp.exp(-0.5 * ((place - 1) * self.radius / self.width) ** 2)


class Gaussian(AbstractLight):
    """exp(-R^2 / 2 `sigma`^2)."""

    profile: ClassVar[str] = "gaussian"
    sigma: Scalar = length("Standard deviation along an axis.", role="width")

    @property
    def scale(self) -> Scalar:
        """The standard deviation along an axis."""
        return self.sigma

    def surface(self, place: Places) -> Places:
        """The Gaussian."""
        return jnp.exp(-0.5 * place**2)


class PointOfLight(AbstractLight):
    """All light at the component's centre."""

    profile: ClassVar[str] = "point"

    @property
    def scale(self) -> Scalar:
        """Nothing."""
        return jnp.zeros(())

    def surface(self, place: Places) -> Places:
        """How the points share the light, which are all at one place."""
        return jnp.exp(-place)


OF_ONE_SHAPE: tuple[type[AbstractLight], ...] = (Exponential, Gaussian, PointOfLight)
"""Profiles whose density over R / `scale` depends on no parameter: radii of their points are the same for all."""


def sersic_b(index: Scalar) -> Scalar:
    """b(n) with gamma(2 n, b) = Gamma(2 n) / 2, to 4e-4 of it at n = 0.5, 3e-5 at 1, 2e-6 from 2 on."""
    n = index
    last = 2194697 / (30690717750.0 * n**4)  # a float: JAX refuses whole numbers beyond 32 bits beside such ones
    return 2 * n - 1 / 3 + 4 / (405 * n) + 46 / (25515 * n**2) + 131 / (1148175 * n**3) - last


class AbstractHeight(eqx.Module):
    """A density over z / `scale` (kpc), the same at all radii; only ratios matter. `highest`: |z| / scale of the
    outermost points."""

    highest: ClassVar[float] = 6.0

    @property
    @abstractmethod
    def scale(self) -> Scalar:
        """kpc; 0 for a thin component."""

    @abstractmethod
    def density(self, place: Places) -> Places:
        """The density at z / scale, >= 0."""


class Thin(AbstractHeight):
    """All light in the plane."""

    profile: ClassVar[str] = "thin"

    @property
    def scale(self) -> Scalar:
        """Nothing."""
        return jnp.zeros(())

    def density(self, place: Places) -> Places:
        """The same for all points, which are in the plane."""
        return jnp.ones_like(place)


class SechSquared(AbstractHeight):
    """sech^2(z / `scale_height`).

    An isothermal sheet (van der Kruit & Searle 1981, A&A 95, 105).
    """

    profile: ClassVar[str] = "sech2"
    scale_height: Scalar = length("Height h of the vertical profile.")

    @property
    def scale(self) -> Scalar:
        """The scale height."""
        return self.scale_height

    def density(self, place: Places) -> Places:
        """sech^2."""
        return 1 / jnp.cosh(place) ** 2


class ExponentialHeight(AbstractHeight):
    """exp(-|z| / `scale_height`)."""

    profile: ClassVar[str] = "exponential"
    scale_height: Scalar = length("Height h of the vertical profile.")
    highest: ClassVar[float] = 11.0

    @property
    def scale(self) -> Scalar:
        """The scale height."""
        return self.scale_height

    def density(self, place: Places) -> Places:
        """The exponential."""
        return jnp.exp(-jnp.abs(place))


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
        return tuple(LineRow(line, self.wavelengths, self.doublets, is_flux) for line in self.wavelengths)

    def shared(self, share: Float[Array | ndarray, " point"]) -> Float[Array, "point line"]:
        """How bright each point is in each line, for shares of the light that add up to 1."""
        first = self.luminosity if self.flux is None else self.flux
        assert first is not None  # checked when the settings were read
        of_lines = first * jnp.concatenate([jnp.ones_like(self.ratios, shape=(1,)), self.ratios])
        return jnp.asarray(share)[:, None] * of_lines[None, :].astype(share.dtype)
