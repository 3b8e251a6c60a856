"""The model of several sets of data: one galaxy, seen by an instrument of each set, each with separate effects:

    data = [ scale (1 + sum_j c_j P_j(x)) V(L_s(cube)) ] + sum_t a_t T_t

L_s is the broadening by a wider line spread, V the mean over a band or the sum over an aperture, P_j Legendre's
polynomials, x = -1 to 1 along the set's wavelengths, T_t templates of the sky.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.forward.model import Observed
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import Voxels
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.posterior.fit_model import (
    OF_DATA,
    AbstractForward,
    AbstractParticleSource,
    Forward,
    Values,
    values_below,
)
from rubix_like.physics.gaussian import weights_of_variance
from rubix_like.runtime.mesh.mesh import DeviceLayout

Flux = Float[Array, "y x wave"]
"""Of the model's cube."""

Seen = Float[Array, "own_y own_x own_wave"]
"""On the axes of the data."""


class Broadening(eqx.Module):
    """A Gaussian that widens the line spread to `scale` times the instrument's.

    The cube's line spread has the variance `effective`, the instrument's stated one `stated` (bins^2, at every
    bin). The light of each bin is spread by the variance max(scale^2 stated - effective, 0).
    """

    stated: Float[Array | ndarray, " wave"]
    effective: Float[Array | ndarray, " wave"]
    reach: int = eqx.field(static=True)

    def __call__(self, flux: Flux, scale: Float[Array, ""]) -> Flux:
        """The flux of the wider line spread; beyond its ends spectra go on as their last bins."""
        reach, n_wave = self.reach, flux.shape[2]
        stated, effective = jnp.asarray(self.stated, flux.dtype), jnp.asarray(self.effective, flux.dtype)
        variance = jnp.pad(jnp.maximum(scale**2 * stated - effective, 0.0), reach, mode="edge")
        weights = jax.vmap(lambda at_bin: weights_of_variance(at_bin, reach))(variance)
        longer = jnp.pad(flux, ((0, 0), (0, 0), (reach, reach)), mode="edge")

        def add(total: Array, number: Array) -> tuple[Array, None]:
            """The sum with what bins `number - reach` before each one give it."""
            start = 2 * reach - number
            light = lax.dynamic_slice_in_dim(longer, start, n_wave, axis=2)
            weight = jnp.take(lax.dynamic_slice_in_dim(weights, start, n_wave, axis=0), number, axis=1)
            return total + light * weight[None, None], None

        return lax.scan(add, jnp.zeros_like(flux), jnp.arange(2 * reach + 1, dtype=jnp.int32))[0]


class Effects(eqx.Module):
    """All of them, for one set; None: there is none of its kind.

    `band`: weights w with sum(w) = 1, of which the data are the mean flux density sum_b w_b F_b of every spaxel, (y, x,
    1); `share`: of each spaxel inside an aperture, of which the data are the light, (1, 1, wave).
    """

    broadening: Broadening | None = None
    band: Float[Array | ndarray, " wave"] | None = None
    share: Float[Array | ndarray, "y x"] | None = None
    polynomial: Float[Array | ndarray, "wave degree"] | None = None
    sky: Float[Array | ndarray, "template wave"] | None = None

    def __call__(self, flux: Flux, nuisances: Mapping[str, Any]) -> Seen:
        """The data's flux (1e-20 erg/s/cm2/Angstrom) of a model's cube; `nuisances`: their values by key."""
        if self.broadening is not None and "lsf_scale" in nuisances:
            flux = self.broadening(flux, nuisances["lsf_scale"])
        if self.band is not None:
            flux = jnp.einsum("yxw,w->yx", flux, jnp.asarray(self.band, flux.dtype))[..., None]
        if self.share is not None:
            flux = jnp.einsum("yxw,yx->w", flux, jnp.asarray(self.share, flux.dtype))[None, None]
        if "scale" in nuisances:
            flux = flux * nuisances["scale"]
        if self.polynomial is not None:
            continuum = jnp.asarray(self.polynomial, flux.dtype) @ nuisances["polynomial"]
            flux = flux * (1 + continuum)[None, None]
        if self.sky is not None:
            flux = flux + (nuisances["sky"] @ jnp.asarray(self.sky, flux.dtype))[None, None]
        return flux


_OFFSET, _VELOCITY, _FWHM = "observation.offset", "observation.velocity_offset", "instrument.psf.fwhm"


class SetModel(eqx.Module):
    """How one set sees the galaxy.

    `displacement`: (East, North) in arcsec that its offset of the galaxy has more than that of the first cube, because
    its field lies elsewhere; `shape`: (y, x, wave) of its data; `of_fibres`: these are spectra of fibres.
    """

    tables: Tables
    parameters: Parameters
    effects: Effects
    displacement: Float[Array | ndarray, "2"]
    plan: Plan = eqx.field(static=True)
    layout: DeviceLayout = eqx.field(static=True)
    name: str = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)
    of_fibres: bool = eqx.field(static=True, default=False)

    def light(self, made: Observed) -> Float[Array, "y x wave"]:
        """The model's flux that the data are about: voxels, or the spectra of fibres as a column."""
        if not self.of_fibres:
            return made.voxels.flux
        if made.fibres is None:
            raise ValueError(f"{self.name}: expected the model of an instrument with fibres, got one without")
        return jnp.asarray(made.fibres.flux)[:, None]

    def nuisances(self, values: Values) -> dict[str, Any]:
        """The values of this set's nuisances, by key."""
        return values_below(values, f"{OF_DATA}{self.name}.")

    def seen_values(self, values: Values) -> dict[str, Any]:
        """The values of its pipeline's and of the galaxy's parameters: with the shifts and the PSF of the set."""
        of_data, observation = self.nuisances(values), self.parameters.observation
        found = {name: value for name, value in values.items() if not name.startswith(OF_DATA)}
        space = jnp if any(isinstance(value, jax.Array) for value in values.values()) else np
        number = functools.partial(space.asarray, dtype=jax.dtypes.canonicalize_dtype(float))
        if _OFFSET in found:
            found[_OFFSET] = number(found[_OFFSET]) + number(self.displacement)
        if "shift" in of_data:
            found[_OFFSET] = number(found.get(_OFFSET, observation.offset)) + number(of_data["shift"])
        if "velocity_shift" in of_data:
            velocity = number(found.get(_VELOCITY, observation.velocity_offset))
            found[_VELOCITY] = velocity + number(of_data["velocity_shift"])
        return found | ({_FWHM: of_data["psf_fwhm"]} if "psf_fwhm" in of_data else {})


class JointForward(AbstractForward):
    """The models of all sets, their voxels in one row (1, 1, voxel), one set after the other.

    Each set is painted, added up over the devices and finished as a cube alone is: one all-reduce a set. `first`: the
    number of the set that stands for all.
    """

    sets: tuple[SetModel, ...]
    source: AbstractParticleSource
    first: int = eqx.field(static=True)
    on_device: bool = eqx.field(static=True, default=False)

    @property
    def main(self) -> Forward:
        """The model of the first cube."""
        return Forward.of(self.sets[self.first], self.source, on_device=self.on_device)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(1, 1, voxel)."""
        return 1, 1, sum(int(np.prod(model.shape)) for model in self.sets)

    @property
    def planned(self) -> tuple[Any, Any]:
        """The plans with the names of the sets, and all arrays."""
        return tuple((model.name, model.shape, model.plan) for model in self.sets), self.sets

    def laid_out(self, layouts: Sequence[tuple[Tables, DeviceLayout]]) -> "JointForward":
        """The models with the tables of each pipeline on another mesh."""
        pairs = zip(self.sets, layouts, strict=True)
        sets = [dataclasses.replace(model, tables=tables, layout=layout) for model, (tables, layout) in pairs]
        return dataclasses.replace(self, sets=tuple(sets))

    def modelled(self, values: Values, key: PRNGKeyArray | None = None) -> tuple[Observed, None]:
        """The flux of all sets, whose populations are not solved for; counters of the first cube under the names of its
        sources, of others after the set's name and a dot."""
        rows, counters = [], {}
        for number, model in enumerate(self.sets):
            made = Forward.of(model, self.source, on_device=self.on_device).observed(model.seen_values(values), key)
            flux = model.light(made).astype(jax.dtypes.canonicalize_dtype(float))
            rows.append(model.effects(flux, model.nuisances(values)).reshape(-1))
            before = "" if number == self.first else f"{model.name}."
            counters |= {f"{before}{source}": counted for source, counted in made.counters.items()}
        row = jnp.concatenate(rows)[None, None]
        return Observed(Voxels(row, None, None), jnp.zeros((1, 1, 2), row.dtype), None, counters), None

    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """The particles, and the parameters of the first cube."""
        return self.main.at(self.sets[self.first].seen_values(values))

    def of_host(self, values: Values, *, particles: bool) -> tuple[Galaxy | None, Parameters]:
        """The particles, if they are asked for, and the parameters of the first cube for values on the host."""
        return self.main.of_host(self.sets[self.first].seen_values(values), particles=particles)
