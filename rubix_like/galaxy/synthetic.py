"""A parametric disc galaxy with bulge and gas, sampled as particles: every parameter is a leaf that can be fitted.

The random numbers are drawn once on the host (`draw_base`); `SyntheticGalaxy.sample` is then a pure, differentiable map
from the parameters and those draws to particles (the reparametrisation by inverse cumulative distributions).
"""

import dataclasses
import functools
import importlib
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.core import Tracer
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.errors import expect_count
from rubix_like.galaxy.components.declared import parameter
from rubix_like.galaxy.limits import LARGEST_LOG_AGE
from rubix_like.galaxy.particles import CELL_RADII, Galaxy, Gas, Stars
from rubix_like.physics.numbered_random import numbered_normal, numbered_uniform
from rubix_like.runtime.places import found_at

Draws = Literal["random", "sobol"]
"""Kinds of base draws."""

BULGE_SHARE: float = 0.2
"""Fraction of the star particles that sample the bulge; its mass is `bulge_fraction`, whatever the share."""

SMALLEST_LOG_AGE: float = 5.0
"""Lower limit of the drawn ages (0.1 Myr)."""

Uniforms = Float[Array | ndarray, "particle 4"]
Normals = Float[Array | ndarray, "particle 5"]
Scalar = Float[Array, ""]

BULGE_TRUNCATION: float = 20.0
"""Radius, in Hernquist scale radii, beyond which the bulge has no particles (9 % of the untruncated mass)."""

BULGE_EFFECTIVE_RADIUS: float = 1.5412143
"""Projected half-mass radius, in scale radii, of the truncated bulge (1.8153 untruncated: Hernquist 1990, eq. 38)."""

SMALLEST_LOG_METALLICITY: float = -8.0
LARGEST_LOG_METALLICITY: float = -1.0
"""Limits of log10 of the drawn metal mass fractions (Z in (0, 0.1])."""

_SMALLEST_UNIFORM = 2.0**-22  # still inside (0, 1) as float32, so that logarithms and atanh stay finite


class ComponentDraws(eqx.Module):
    """Base draws of one component: uniforms inside (0, 1) for the positions, standard normals for the rest; as drawn,
    arrays of the host."""

    uniform: Uniforms
    normal: Normals


class BaseDraws(eqx.Module):
    """The random numbers behind a synthetic galaxy; their lengths are its particle counts (gas: None for none)."""

    disc: ComponentDraws
    bulge: ComponentDraws
    gas: ComponentDraws | None
    kind: Draws = eqx.field(static=True, default="random")

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        return self.disc.uniform.shape[0] + self.bulge.uniform.shape[0]

    @property
    def n_gas(self) -> int:
        """Number of gas particles."""
        return 0 if self.gas is None else self.gas.uniform.shape[0]

    def others(self, seed: int) -> "BaseDraws":
        """Other draws: as many stars and gas particles, of the same kind, from another seed."""
        return draw_base(self.n_stars, self.n_gas, seed, self.kind)

    def anew(self, key: PRNGKeyArray) -> "BaseDraws":
        """Other draws of the same kind on the device, from a key; pure and traceable.

        Sobol points are moved by one uniform vector per component, modulo 1 (Cranley & Patterson 1976, SIAM J. Numer.
        Anal. 13, 904): still uniform and unbiased, and as evenly spread.
        """
        make = _moved if self.kind == "sobol" else _redrawn
        parts = (self.disc, self.bulge, self.gas)
        disc, bulge, gas = (
            None if component is None else make(component, jax.random.fold_in(key, number))
            for number, component in enumerate(parts)
        )
        return dataclasses.replace(self, disc=disc, bulge=bulge, gas=gas)

    def sets(self, count: int, seed: int) -> "BaseDraws":
        """`count` sets of as many stars and gas particles, with one more axis in front, from another seed: the sets
        together are one of `count` times as many (parts of one Sobol sequence, not separate sequences)."""
        sizes = [
            0 if component is None else component.uniform.shape[0] for component in (self.disc, self.bulge, self.gas)
        ]

        def cut(leaf: ndarray) -> ndarray:
            return leaf.reshape(count, leaf.shape[0] // count, leaf.shape[1])

        disc, bulge, gas = jax.tree.map(cut, _draw([count * size for size in sizes], seed, self.kind))
        return BaseDraws(disc, bulge, None if self.gas is None else gas, self.kind)


def _redrawn(draws: ComponentDraws, key: PRNGKeyArray) -> ComponentDraws:
    """Independent numbers, as many as before."""
    first, second = jax.random.split(key)
    uniform = numbered_uniform(first, _numbers(draws.uniform), draws.uniform.dtype)
    normal = numbered_normal(second, _numbers(draws.normal), draws.normal.dtype)
    return ComponentDraws(uniform=_clipped(uniform), normal=normal)


def _numbers(like: Float[Array | ndarray, "particle k"]) -> Int[Array, "particle k"]:
    return jnp.arange(like.size, dtype=jnp.int32).reshape(like.shape)


def _moved(draws: ComponentDraws, key: PRNGKeyArray) -> ComponentDraws:
    """All points moved by the same vector, modulo 1."""
    points = jnp.concatenate([draws.uniform, ndtr(draws.normal)], axis=1)
    shift = jax.random.uniform(key, (1, points.shape[1]), points.dtype)
    moved = _clipped((points + shift) % 1)
    return ComponentDraws(uniform=moved[:, :4], normal=ndtri(moved[:, 4:]))


def _clipped(uniform: Float[Array, "particle k"]) -> Float[Array, "particle k"]:
    return jnp.clip(uniform, _SMALLEST_UNIFORM, 1 - _SMALLEST_UNIFORM)


@named_arguments
def draw_base(n_stars: int, n_gas: int, seed: int, draws: Draws = "random") -> BaseDraws:
    """Draw on the host; a fifth of the stars, rounded, samples the bulge.

    `random`: numpy's default generator. `sobol`: for each component the first points of a separate Sobol sequence,
    scrambled by the seed (Owen 1995; Joe & Kuo 2008, SIAM J. Sci. Comput. 30, 2635): still uniform and unbiased, but
    spread evenly, so that sums over particles scatter less; normals are Phi^-1 of them.
    """
    if n_stars < 1 or n_gas < 0:
        raise ValueError(f"synthetic galaxy: expected n_stars >= 1 and n_gas >= 0, got {n_stars} and {n_gas}")
    expect_count(seed, "seed", least=0)
    n_bulge = round(BULGE_SHARE * n_stars)
    disc, bulge, gas = _draw((n_stars - n_bulge, n_bulge, n_gas), seed, draws)
    return BaseDraws(disc=disc, bulge=bulge, gas=gas if n_gas else None, kind=draws)


def _draw(counts: Sequence[int], seed: int, draws: Draws) -> list[ComponentDraws]:
    if draws == "sobol":
        return [_draw_evenly([seed, number], count) for number, count in enumerate(counts)]
    generator = np.random.default_rng(seed)
    return [_draw_component(generator, count) for count in counts]


def _draw_component(generator: np.random.Generator, count: int) -> ComponentDraws:
    uniform = _inside(generator.random((count, 4)))
    return _component(uniform, generator.standard_normal((count, 5)))


def _draw_evenly(seed: list[int], count: int) -> ComponentDraws:
    """The first `count` of 2^m scrambled Sobol points in nine dimensions."""
    qmc = importlib.import_module("scipy.stats.qmc")  # slow: only where such points are drawn
    sequence = qmc.Sobol(9, rng=np.random.default_rng(seed))
    points = _inside(sequence.random_base2(max(count - 1, 0).bit_length())[:count])
    return _component(points[:, :4], scipy.special.ndtri(points[:, 4:]))


def _component(uniform: ndarray, normal: ndarray) -> ComponentDraws:
    dtype = jax.dtypes.canonicalize_dtype(float)
    return ComponentDraws(uniform=uniform.astype(dtype), normal=normal.astype(dtype))


def _inside(uniform: Float[ndarray, "particle k"]) -> Float[ndarray, "particle k"]:
    return np.clip(uniform, _SMALLEST_UNIFORM, 1 - _SMALLEST_UNIFORM)


_SETTINGS = "rubix_like.readers.synthetic:SyntheticReader"
"""Checks values against the declarations below; above this package, as it needs the types of settings."""


def _as_leaf(name: str, value: Any) -> Array | None:
    """A parameter's value, in its unit and within its limits unless it is traced."""
    if not isinstance(value, Tracer):
        shortest = str(value) if isinstance(value, jax.Array) else value  # 10.3 in 32 bits is not above 10.3
        checked = found_at(_SETTINGS).checked(name, shortest)
        value = value if isinstance(value, jax.Array) else checked
    return None if value is None else jnp.asarray(value, jax.dtypes.canonicalize_dtype(float))


def _leaf(
    name: str,
    unit: str,
    default: float | None,
    doc: str,
    *,
    fitted: bool = True,
    **declared: Any,
) -> Any:
    """A `parameter` that converts its value, with a default; None: the value of the stars' disc."""
    setting = parameter(unit, doc, default=default, **declared).metadata["setting"]
    if not fitted:
        setting = setting._replace(mark=None)
    return eqx.field(converter=functools.partial(_as_leaf, name), default=default, metadata={"setting": setting})


_age_leaf = functools.partial(_leaf, ge=SMALLEST_LOG_AGE, le=LARGEST_LOG_AGE)
_metal_leaf = functools.partial(_leaf, gt=0, le=0.1)


class SyntheticGalaxy(eqx.Module):
    """Exponential disc, Hernquist bulge and exponential gas disc in rotation (leaves: float scalars, or None).

    Disc: surface density exp(-R / R_d), height sech^2(z / h) (van der Kruit & Searle 1981), rotation
    v(R) = V (2 / pi) arctan(R / R_t) (Courteau 1997) about +z, isotropic dispersion. Bulge: Hernquist (1990, ApJ 356,
    359), isotropic, no rotation. log_age and log10 Z are linear in R in the disc, constant in the bulge, with normal
    scatter; ages stay below `oldest_log_age`, Z in (0, 0.1].

    Gas: a disc of the same form with another length, height, dispersion, rotation (against the stars where V < 0) and
    metallicities; a rotation or metallicity of None has the value of the stars' disc. Cells have one mass
    and one star formation rate. Their density is the disc's, M / (4 pi R_d^2 h) exp(-R / R_d) sech^2(z / h), and their
    smoothing length twice the radius of a sphere of their volume, as readers take it (`particles.CELL_RADII`).

    Settings, limits, the JSON schema and the parameters of fits follow from the declarations of the leaves
    (`readers.synthetic.SyntheticReader`); quantities are converted.
    """

    stellar_mass: Scalar = _leaf(
        "stellar_mass", "Msun", 1e10, "Mass at birth, disc and bulge together.", role="mass", gt=0
    )
    bulge_fraction: Scalar = _leaf("bulge_fraction", "", 0.2, "Share of `stellar_mass` in the bulge.", ge=0, le=1)
    disc_scale_length: Scalar = _leaf(
        "disc_scale_length", "kpc", 1.5, "Scale length of the exponential disc.", moves=True, role="scale_length", gt=0
    )
    disc_scale_height: Scalar = _leaf("disc_scale_height", "kpc", 0.2, "Height h of sech^2(z / h).", moves=True, gt=0)
    bulge_effective_radius: Scalar = _leaf(
        "bulge_effective_radius", "kpc", 0.5, "Projected half-mass radius.", moves=True, gt=0
    )
    rotation_velocity: Scalar = _leaf(
        "rotation_velocity", "km/s", 180.0, "V of V (2 / pi) arctan(R / `turnover_radius`).", role="rotation"
    )
    turnover_radius: Scalar = _leaf("turnover_radius", "kpc", 0.5, "Where the rotation has reached half of V.", gt=0)
    disc_dispersion: Scalar = _leaf("disc_dispersion", "km/s", 30.0, "Dispersion of velocities along each axis.", ge=0)
    bulge_dispersion: Scalar = _leaf(
        "bulge_dispersion", "km/s", 100.0, "Dispersion of velocities along each axis.", ge=0
    )
    disc_log_age: Scalar = _age_leaf(
        "disc_log_age",
        "",
        9.6,
        "log10(age / yr) at the centre of the disc, e.g. 9.5 for 3.2 Gyr.",
        axis="age",
    )
    disc_log_age_gradient: Scalar = _leaf(
        "disc_log_age_gradient", "dex / kpc", -0.1, "Slope of log10(age / yr) along the radius."
    )
    bulge_log_age: Scalar = _age_leaf(
        "bulge_log_age", "", 9.9, "log10(age / yr) of the bulge, e.g. 9.5 for 3.2 Gyr.", axis="age"
    )
    log_age_scatter: Scalar = _leaf(
        "log_age_scatter", "dex", 0.1, "Scatter of log10(age / yr) about these means.", ge=0
    )
    oldest_log_age: Scalar = _age_leaf(
        "oldest_log_age",
        "",
        10.1,
        "Upper limit of log10(age / yr), to be set below the Universe's age at the galaxy's redshift.",
    )
    disc_metallicity: Scalar = _metal_leaf(
        "disc_metallicity",
        "",
        0.02,
        "Metal mass fraction Z at the centre of the disc, e.g. 0.02.",
        axis="metallicity",
    )
    disc_metallicity_gradient: Scalar = _leaf(
        "disc_metallicity_gradient", "dex / kpc", -0.05, "Slope of log10 Z along the radius."
    )
    bulge_metallicity: Scalar = _metal_leaf(
        "bulge_metallicity",
        "",
        0.025,
        "Metal mass fraction Z of the bulge, e.g. 0.02.",
        axis="metallicity",
    )
    metallicity_scatter: Scalar = _leaf("metallicity_scatter", "dex", 0.1, "Scatter of log10 Z.", ge=0)
    gas_fraction: Scalar = _leaf("gas_fraction", "", 0.1, "Mass of the gas over `stellar_mass`.", ge=0)
    gas_scale_length: Scalar = _leaf(
        "gas_scale_length", "kpc", 2.5, "Scale length of the exponential disc of gas.", moves=True, gt=0
    )
    gas_scale_height: Scalar = _leaf(
        "gas_scale_height", "kpc", 0.1, "Height h of sech^2(z / h) of the gas.", moves=True, gt=0
    )
    gas_rotation_velocity: Scalar | None = _leaf(
        "gas_rotation_velocity", "km/s", None, "V of the gas, below 0 against the stars; null: that of the stars' disc."
    )
    gas_turnover_radius: Scalar | None = _leaf(
        "gas_turnover_radius",
        "kpc",
        None,
        "Where the rotation of the gas has reached half of V; null: as in the stars' disc.",
        gt=0,
    )
    gas_dispersion: Scalar = _leaf(
        "gas_dispersion", "km/s", 10.0, "Dispersion of the cells' velocities along each axis.", ge=0
    )
    gas_metallicity: Scalar | None = _metal_leaf(
        "gas_metallicity",
        "",
        None,
        "Metal mass fraction Z of the gas at the centre, e.g. 0.014; null: as in the stars' disc.",
    )
    gas_metallicity_gradient: Scalar | None = _leaf(
        "gas_metallicity_gradient",
        "dex / kpc",
        None,
        "Slope of log10 Z of the gas along the radius; null: as in the stars' disc.",
    )
    gas_metallicity_scatter: Scalar | None = _leaf(
        "gas_metallicity_scatter", "dex", None, "Scatter of log10 Z of the gas; null: `metallicity_scatter`.", ge=0
    )
    gas_temperature: Scalar = _leaf("gas_temperature", "K", 1e4, "Temperature of all gas.", fitted=False, gt=0)
    star_formation_rate: Scalar = _leaf(
        "star_formation_rate", "Msun / yr", 1.0, "Sum over all gas, spread over it by mass.", ge=0
    )

    @named_arguments
    def sample(self, draws: BaseDraws) -> Galaxy:
        """Map the base draws to particles (kpc, km/s, Msun); pure, traceable, differentiable in every leaf.

        The disc's angular momentum is along +z. Particles of one component have equal masses; with no bulge particle
        (one or two stars) the disc carries the whole mass.
        """
        disc, bulge = self._disc_stars(draws.disc), self._bulge_stars(draws.bulge)
        n_disc, n_bulge = disc[2].shape[0], bulge[2].shape[0]
        bulge_fraction = self.bulge_fraction if n_bulge else jnp.zeros_like(self.bulge_fraction)
        disc_mass = jnp.broadcast_to(self.stellar_mass * (1 - bulge_fraction) / n_disc, (n_disc,))
        bulge_mass = jnp.broadcast_to(self.stellar_mass * bulge_fraction / max(n_bulge, 1), (n_bulge,))
        position, velocity, log_age, metallicity = (jnp.concatenate(pair) for pair in zip(disc, bulge, strict=True))
        stars = Stars(
            position=position,
            velocity=velocity,
            initial_mass=jnp.concatenate([disc_mass, bulge_mass]),
            log_age=log_age,
            metallicity=metallicity,
        )
        return Galaxy(stars=stars, gas=None if draws.gas is None else self._gas(draws.gas))

    def _disc_stars(self, draws: ComponentDraws) -> tuple[Array, Array, Array, Array]:
        radius, position = _disc_positions(draws, self.disc_scale_length, self.disc_scale_height)
        rotation = _rotation(draws, radius, self.rotation_velocity, self.turnover_radius)
        velocity = rotation + self.disc_dispersion * draws.normal[:, :3]
        log_age = self._log_age(self.disc_log_age + self.disc_log_age_gradient * radius, draws)
        mean = jnp.log10(self.disc_metallicity) + self.disc_metallicity_gradient * radius
        return position, velocity, log_age, _metallicity(mean + self.metallicity_scatter * draws.normal[:, 4])

    def _bulge_stars(self, draws: ComponentDraws) -> tuple[Array, Array, Array, Array]:
        """Hernquist: M(<r) / M = r^2 / (r + a)^2, so r = a q / (1 - q) with q the square root of the mass fraction."""
        q = jnp.sqrt(draws.uniform[:, 0]) * (BULGE_TRUNCATION / (1 + BULGE_TRUNCATION))
        radius = self.bulge_effective_radius / BULGE_EFFECTIVE_RADIUS * q / (1 - q)
        azimuth, cosine = 2 * jnp.pi * draws.uniform[:, 1], 2 * draws.uniform[:, 2] - 1
        sine = jnp.sqrt(1 - cosine**2)
        direction = jnp.stack([sine * jnp.cos(azimuth), sine * jnp.sin(azimuth), cosine], axis=1)
        log_age = self._log_age(self.bulge_log_age, draws)
        metallicity = _metallicity(jnp.log10(self.bulge_metallicity) + self.metallicity_scatter * draws.normal[:, 4])
        return radius[:, None] * direction, self.bulge_dispersion * draws.normal[:, :3], log_age, metallicity

    def _gas(self, draws: ComponentDraws) -> Gas:
        length, height, count = self.gas_scale_length, self.gas_scale_height, draws.normal.shape[0]
        radius, position = _disc_positions(draws, length, height)
        speed = _either(self.gas_rotation_velocity, self.rotation_velocity)
        rotation = _rotation(draws, radius, speed, _either(self.gas_turnover_radius, self.turnover_radius))
        gradient = _either(self.gas_metallicity_gradient, self.disc_metallicity_gradient)
        mean = jnp.log10(_either(self.gas_metallicity, self.disc_metallicity)) + gradient * radius
        scatter = _either(self.gas_metallicity_scatter, self.metallicity_scatter)
        total = self.gas_fraction * self.stellar_mass
        profile = jnp.exp(-radius / length) / jnp.cosh(position[:, 2] / height) ** 2
        volume = 4 * jnp.pi * length**2 * height
        return Gas(
            position=position,
            velocity=rotation + self.gas_dispersion * draws.normal[:, :3],
            mass=jnp.broadcast_to(total / count, (count,)),
            metallicity=_metallicity(mean + scatter * draws.normal[:, 4]),
            temperature=jnp.broadcast_to(self.gas_temperature, (count,)),
            density=total / volume * profile,
            star_formation_rate=jnp.broadcast_to(self.star_formation_rate / count, (count,)),
            smoothing_length=CELL_RADII * jnp.cbrt(3 * volume / (4 * jnp.pi * count * profile)),
        )

    def _log_age(self, mean: Array, draws: ComponentDraws) -> Array:
        log_age = mean + self.log_age_scatter * draws.normal[:, 3]
        return jnp.minimum(jnp.maximum(log_age, SMALLEST_LOG_AGE), self.oldest_log_age)


_NAMES = [field.name for field in dataclasses.fields(SyntheticGalaxy)]

GAS_PARAMETERS: tuple[str, ...] = (*(name for name in _NAMES if name.startswith("gas_")), "star_formation_rate")
"""The parameters of the gas alone, on which no star depends."""


@jax.jit
def sampled(galaxy: SyntheticGalaxy, draws: BaseDraws) -> Galaxy:
    """`galaxy.sample(draws)`, compiled."""
    return galaxy.sample(draws)


def _disc_positions(draws: ComponentDraws, length: Array, height: Array) -> tuple[Array, Array]:
    """Cylindrical radius and position: R / length is Gamma(2), z / height the atanh of a uniform."""
    u = draws.uniform
    radius = -length * (jnp.log(u[:, 0]) + jnp.log(u[:, 1]))
    cosine, sine = jnp.cos(2 * jnp.pi * u[:, 2]), jnp.sin(2 * jnp.pi * u[:, 2])
    z = height * jnp.arctanh(2 * u[:, 3] - 1)
    return radius, jnp.stack([radius * cosine, radius * sine, z], axis=1)


def _rotation(draws: ComponentDraws, radius: Array, velocity: Array, turnover: Array) -> Array:
    azimuth = 2 * jnp.pi * draws.uniform[:, 2]
    speed = velocity * (2 / jnp.pi) * jnp.arctan(radius / turnover)
    return jnp.stack([-speed * jnp.sin(azimuth), speed * jnp.cos(azimuth), jnp.zeros_like(radius)], axis=1)


def _either(value: Array | None, others: Array) -> Array:
    return others if value is None else value


def _metallicity(log_metallicity: Array) -> Array:
    return 10 ** jnp.clip(log_metallicity, SMALLEST_LOG_METALLICITY, LARGEST_LOG_METALLICITY)
