"""The forward model: two pure functions, composed into one compiled function over a mesh of devices."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

from rubix_like.counters import count
from rubix_like.cube import Counters
from rubix_like.galaxy import Galaxy
from rubix_like.painter import View
from rubix_like.parameters import Parameters
from rubix_like.products.sums import ProductImages, Sighting
from rubix_like.scene import Scene
from rubix_like.sharding import DATA_AXIS, replicated
from rubix_like.stages.base import AbstractComponent, PaintedCube, split_keys
from rubix_like.tables import Plan, Tables


class Partial(eqx.Module):
    """Sums over particles: one painter's partial and one set of counters per component, and the products' sums."""

    light: tuple[Any, ...]
    counters: tuple[Counters, ...]
    products: Float[Array, "spaxel column"] | None


def paint(plan: Plan, tables: Tables, parameters: Parameters, particles: tuple[Any, ...]) -> Partial:
    """Sums over the particles at hand, in chunks: into the observer's frame, through the scene stages, onto spaxels."""
    sums = [
        _paint_component(plan, tables, parameters, component, own)
        for component, own in zip(tables.paint, particles, strict=True)
    ]
    return Partial(
        light=tuple(light for light, _ in sums),
        counters=tuple(counters for _, counters in sums),
        products=_paint_products(plan, tables, parameters, particles),
    )


def _paint_component(
    plan: Plan, tables: Tables, parameters: Parameters, component: AbstractComponent, particles: Any
) -> tuple[Any, Counters]:
    painter = component.painter
    scale = tables.grid.pixel_scale
    half_field = (0.5 * plan.n_x * scale, 0.5 * plan.n_y * scale)

    def look(chunk: Any) -> tuple[View, Counters]:
        scene = _observed_scene(tables, parameters, component, chunk)
        coordinates = component.coordinates(scene)
        outside = {name: painter.axes.outside(name, coordinates) for name in painter.axes.names}
        spaxel, share = tables.grid.weights(scene.position)
        view = View(scene.initial_mass, coordinates, scene.v_los, spaxel, share)
        return view, count(scene, outside, half_field, painter.velocity_limit)

    return painter.paint(look, particles, tables.grid, plan.chunk)


def _observed_scene(tables: Tables, parameters: Parameters, component: AbstractComponent, chunk: Any) -> Scene:
    """Particles in the observer's frame, after the scene stages."""
    scene = component.scene(chunk, tables.alignment, tables.arcsec_per_kpc)
    for stage in tables.scene:
        scene = stage(scene, parameters)
    return scene


def _paint_products(
    plan: Plan, tables: Tables, parameters: Parameters, particles: tuple[Any, ...]
) -> Float[Array, "spaxel column"] | None:
    """The sums over stars that maps are made of; nothing where the run makes none."""
    products = tables.products
    if products is None:
        return None
    component = tables.paint[products.component]

    def look(chunk: Any) -> Sighting:
        scene = _observed_scene(tables, parameters, component, chunk)
        return Sighting(scene, component.coordinates(scene), *tables.grid.weights(scene.position))

    reference = parameters.observation.velocity_offset
    return products.paint(look, particles[products.component], tables.grid, plan.chunk, reference)


def finish(
    plan: Plan, tables: Tables, parameters: Parameters, partial: Partial, key: PRNGKeyArray | None
) -> tuple[PaintedCube, Counters]:
    """From sums over all particles to the observed cube: the detector, then the cube stages."""
    projected = [component.painter.project(light) for component, light in zip(tables.paint, partial.light, strict=True)]
    flux = sum((flux for flux, _ in projected[1:]), start=projected[0][0])
    moments = sum((moments for _, moments in projected[1:]), start=projected[0][1])
    shape = (plan.n_y + 2 * plan.margin, plan.n_x + 2 * plan.margin, -1)
    cube = PaintedCube(flux=flux.reshape(shape), moments=moments.reshape(shape))
    if partial.products is not None:
        painted = partial.products.reshape(shape)
        cube = eqx.tree_at(lambda c: c.moments, cube, jnp.concatenate([cube.moments, painted], axis=2))
    for stage, own_key in zip(tables.cube, split_keys(key, tables.cube), strict=True):
        cube = stage(cube, parameters, own_key)
    if partial.products is not None:
        cube = _with_products(plan, parameters, cube, partial.products.reshape(shape))
    counters = functools.reduce(functools.partial(jax.tree.map, jnp.add), partial.counters)
    return cube, counters


def _with_products(
    plan: Plan, parameters: Parameters, cube: PaintedCube, painted: Float[Array, "y x column"]
) -> PaintedCube:
    """The products' images out of the moments after the last stage, with those before the first, without its margin."""
    inside = slice(plan.margin, plan.margin + plan.n_y), slice(plan.margin, plan.margin + plan.n_x)
    images = ProductImages(painted[inside], cube.moments[:, :, 2:], parameters.observation.velocity_offset)
    return dataclasses.replace(cube, moments=cube.moments[:, :, :2], products=images)


def observe(
    plan: Plan, mesh: Mesh, tables: Tables, parameters: Parameters, galaxy: Galaxy, key: PRNGKeyArray | None
) -> tuple[PaintedCube, Counters]:
    """The whole way: every device paints its own particles, one psum adds the partials, the sum is finished once."""
    whole, split = PartitionSpec(), PartitionSpec(DATA_AXIS)

    def paint_and_add(tables: Tables, parameters: Parameters, particles: tuple[Any, ...]) -> Partial:
        return lax.psum(paint(plan, tables, parameters, particles), DATA_AXIS)

    particles = tuple(component.particles(galaxy) for component in tables.paint)
    add_up = jax.shard_map(paint_and_add, mesh=mesh, in_specs=(whole, whole, split), out_specs=whole)
    return finish(plan, tables, parameters, add_up(tables, parameters, particles), key)


@functools.lru_cache(maxsize=128)
def compiled_observe(plan: Plan, mesh: Mesh, spec_leaves: tuple[Any, ...], structure: Any) -> Callable[..., Any]:
    """`observe` under one jit: particles lie as the spec tree says, all else is whole on every device.

    Cached, so that pipelines with the same plan on the same mesh share what was compiled.
    """
    whole = replicated(mesh)
    spec_tree = jax.tree.unflatten(structure, spec_leaves)
    return jax.jit(
        functools.partial(observe, plan, mesh), in_shardings=(whole, whole, spec_tree, whole), out_shardings=whole
    )
