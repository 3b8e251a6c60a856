"""Maps of a field: images of what the particles are and do, before and after the PSF."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import (
    BALMER_LINES,
    AttenuationCurve,
    Image,
    LineAxes,
    LineMaps,
    Maps,
    MapSet,
    ProductAxes,
)
from rubix_like.cube.meta import Counters, Meta
from rubix_like.forward.products.sums import DUST_SUMS, MEANS, SUMS, ProductImages
from rubix_like.galaxy.limits import POSSIBLE
from rubix_like.runtime.mesh.mesh import own_copy

_FAINTEST = 1e-6
"""After the PSF a spaxel with less than this share of the brightest one's light (mass) has no mean."""


def make_maps(
    images: ProductImages,
    axes: ProductAxes,
    mask: Int[np.ndarray, "y x"],
    counters: Counters | None,
    *,
    footprint: Footprint,
    meta: Meta,
) -> Maps:
    """The maps, before and after the PSF, that images of the sums hold; differentiable."""
    attenuation = None
    if axes.dust is not None and images.starlight is not None:
        attenuation = AttenuationCurve(axes.dust.wavelength, images.starlight[0], images.starlight[1])
    before = _map_set(images.before, images, axes, 0.0)
    _check_sums("stars", before.birth_mass)
    _check_sums("gas", before.gas_mass)
    return Maps(
        before=before,
        after=_map_set(images.after, images, axes, _FAINTEST),
        mask=mask,
        velocity=axes.velocity,
        counters=counters,
        filters=axes.filters,
        band=axes.band,
        fit_particles=axes.fit_particles,
        footprint=footprint,
        meta=meta,
        fields=axes.fields,
        lines=() if axes.lines is None else axes.lines.lines,
        attenuation=attenuation,
    )


def _check_sums(kind: str, mass: Image | None) -> None:
    """Raise ValueError for sums over particles that cannot be; it does nothing while tracing."""
    if mass is None or isinstance(mass, Tracer) or np.isfinite(own_copy(mass)).all():
        return
    raise ValueError(
        f"galaxy.{kind}: expected {POSSIBLE}, got others in the maps of {kind}; rubix_like.validate(galaxy) names them"
    )


def _map_set(image: Float[Array, "y x column"], images: ProductImages, axes: ProductAxes, faintest: float) -> MapSet:
    """One set of maps from the columns of an image: `SUMS`, filters, dust, bins of velocity, gas, lines, fields."""
    sums = {name: image[:, :, column] for column, name in enumerate(SUMS)}
    n_velocity = 0 if axes.velocity is None else len(axes.velocity)
    first, last = len(SUMS), len(SUMS) + len(axes.filters)
    flux, dusty = image[:, :, first:last], image[:, :, last:]
    last += 0 if axes.dust is None else len(DUST_SUMS) + len(axes.filters)
    gas = {name: image[:, :, last + n_velocity + column] for column, name in enumerate(images.gas)}
    rest = image[:, :, last + n_velocity + len(gas) :]
    lines, rest = _line_maps(rest, images, axes.lines, faintest)
    means = {
        f"{quantity}_{weight}": _mean(sums[f"{weight}_{quantity}"], sums[weight], faintest)
        for weight in ("light", "mass")
        for quantity in ("velocity", "velocity2", "log_age", "age", "metallicity")
    }
    moments: dict[str, Any] = {}
    for weight in ("light", "mass"):
        mean, square = means.pop(f"velocity_{weight}"), means.pop(f"velocity2_{weight}")
        moments |= {f"v_{weight}": mean + images.reference, f"sigma_{weight}": _root(square - mean**2)}
    return MapSet(
        **{name: sums[name] for name in ("number", "birth_mass", "mass", "light")},
        **moments,
        **means,
        flux=flux,
        losvd=None if axes.velocity is None else image[:, :, last : last + n_velocity] / axes.velocity_step,
        fields={label.name: rest[:, :, number] for number, label in enumerate(axes.fields)},
        **(_gas_maps(gas, images.reference, faintest) if gas else {}),
        **lines,
        **({} if axes.dust is None else _dust_maps(dusty, sums["mass"], lines.get("lines", {}), axes, faintest)),
    )


def _dust_maps(
    image: Float[Array, "y x column"],
    mass: Image,
    lines: Mapping[str, LineMaps],
    axes: ProductAxes,
    faintest: float,
) -> dict[str, Any]:
    """The maps of dust, from `DUST_SUMS` and the filters before dust at the head of the columns and, where there are
    any, from the maps of Ha and Hb."""
    light, light_a_v, mass_a_v = (image[:, :, column] for column in range(len(DUST_SUMS)))
    maps = {
        "intrinsic_light": light,
        "intrinsic_flux": image[:, :, len(DUST_SUMS) : len(DUST_SUMS) + len(axes.filters)],
        "a_v_light": _mean(light_a_v, light, faintest),
        "a_v_mass": _mean(mass_a_v, mass, faintest),
    }
    excess = None if axes.dust is None else axes.dust.balmer_excess
    return maps if excess is None else maps | _balmer_maps(lines, excess, faintest)


def _balmer_maps(lines: Mapping[str, LineMaps], excess: float, faintest: float) -> dict[str, Any]:
    """Ha / Hb, and the A(V) that dims Hb by as much more than Ha as it is above that before dust."""
    h_alpha, h_beta = (lines[name] for name in BALMER_LINES)
    decrement = _mean(h_alpha.flux, h_beta.flux, faintest)
    if h_alpha.intrinsic_flux is None or h_beta.intrinsic_flux is None:
        return {"balmer_decrement": decrement}
    ratio = decrement / _mean(h_alpha.intrinsic_flux, h_beta.intrinsic_flux, 0.0)
    there = ratio > 0
    a_v = 2.5 / excess * jnp.log10(jnp.where(there, ratio, jnp.ones_like(ratio)))
    return {"balmer_decrement": decrement, "a_v_balmer": jnp.where(there, a_v, jnp.nan)}


def _gas_maps(sums: Mapping[str, Image], reference: Float[Array, ""], faintest: float) -> dict[str, Any]:
    """The maps of gas from its sums by name; those that are means are weighted by its mass."""
    mean, square, *metals = (_mean(sums[name], sums["gas_mass"], faintest) for name in MEANS if name in sums)
    moments = {"v_gas": mean + reference, "sigma_gas": _root(square - mean**2)}
    moments |= dict(zip(("metallicity_gas",), metals, strict=False))
    return {name: image for name, image in sums.items() if name not in MEANS} | moments


def _line_maps(
    image: Float[Array, "y x column"], images: ProductImages, axes: LineAxes | None, faintest: float
) -> tuple[dict[str, Any], Float[Array, "y x other"]]:
    """The maps of lines and photons from the blocks of `axes` at the head of the columns, and the other columns."""
    if axes is None:
        return {}, image
    *blocks, rest = jnp.split(image, np.cumsum(list(axes.blocks.values())), axis=2)
    found = dict(zip(axes.blocks, blocks, strict=True))
    flux, first, second = jnp.split(found["moments"], 3, axis=2)
    beside, transmission, bare = found.get("continuum"), images.transmission, found.get("intrinsic")
    maps = {}
    for number, line in enumerate(axes.lines):
        own = flux[:, :, number]
        mean, square = (_mean(sums[:, :, number], own, faintest) for sums in (first, second))
        seen = jnp.ones_like(images.reference) if transmission is None else transmission[number]
        level = None if beside is None or not line.has_continuum else beside[:, :, number]
        maps[line.name] = LineMaps(
            flux=own * seen,
            intrinsic_flux=bare[:, :, number] if bare is not None else None if transmission is None else own,
            v=mean + images.reference,
            sigma=_root(square - mean**2),
            continuum=None if level is None else level * seen,
            equivalent_width=None if level is None else _mean(own, level, faintest) / (1.0 + axes.redshift),
        )
    photons = found["photons"][:, :, 0] if "photons" in found else None
    return {"lines": maps, "ionising_photons": photons}, rest


def _mean(weighted: Image, weight: Image, faintest: float) -> Float[Array, "y x"]:
    """`weighted` / `weight` where there is weight, with a gradient of 0 elsewhere."""
    there = weight > faintest * jnp.max(weight)
    return jnp.where(there, weighted / jnp.where(there, weight, jnp.ones_like(weight)), jnp.nan)


def _root(variance: Float[Array, "y x"]) -> Float[Array, "y x"]:
    """The square root, 0 (with no gradient) where rounding leaves nothing or less."""
    positive = variance > 0
    return jnp.where(
        positive,
        jnp.sqrt(jnp.where(positive, variance, jnp.ones_like(variance))),
        jnp.where(jnp.isnan(variance), variance, 0),
    )
