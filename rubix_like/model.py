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
from rubix_like.stages.base import AbstractComponent, AbstractCubeStage, PaintedCube, Spatial, split_keys
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
        spaxel, share = tables.grid.weights(scene.position, scene.smoothing_length)
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
        return Sighting(
            scene, component.coordinates(scene), *tables.grid.weights(scene.position, scene.smoothing_length)
        )

    return products.paint(look, particles[products.component], tables.grid, plan.chunk, parameters)


def finish(
    plan: Plan, tables: Tables, parameters: Parameters, partial: Partial, key: PRNGKeyArray | None
) -> tuple[PaintedCube, Counters]:
    """From sums over all particles to the observed cube: the detector, then the cube stages."""
    early, late = leading_spatial(tables.cube, parameters)

    def seen(images: Float[Array, "y x k"]) -> Float[Array, "seen k"]:
        for stage in early:
            images = stage(images)
        return images.reshape(-1, images.shape[2])

    def spatial(columns: Float[Array, "spaxel k"]) -> Float[Array, "seen k"]:
        return seen(tables.grid.images(columns))

    projected = [
        component.painter.project(light, spatial) for component, light in zip(tables.paint, partial.light, strict=True)
    ]
    flux = sum((flux for flux, _ in projected[1:]), start=projected[0][0])
    moments = sum((moments for _, moments in projected[1:]), start=projected[0][1])
    products = None if partial.products is None else tables.grid.images(partial.products)
    if products is not None:
        moments = jnp.concatenate([moments, seen(products)], axis=1)
    margin = sum(stage.margin for stage, _ in late)
    shape = (plan.n_y + 2 * margin, plan.n_x + 2 * margin, -1)
    cube = PaintedCube(flux=flux.reshape(shape), moments=moments.reshape(shape))
    keys = split_keys(key, tables.cube)
    for stage, number in late:
        cube = stage(cube, parameters, keys[number])
    if products is not None:
        cube = _with_products(plan, parameters, cube, products)
    counters = functools.reduce(functools.partial(jax.tree.map, jnp.add), partial.counters)
    return cube, counters


def leading_spatial(
    stages: tuple[AbstractCubeStage, ...], parameters: Parameters
) -> tuple[list[Spatial], list[tuple[AbstractCubeStage, int]]]:
    """The maps of images at the head of the list, which commute with projection; the other stages and their numbers."""
    early: list[Spatial] = []
    for stage in stages:
        spatial = stage.spatial(parameters)
        if spatial is None:
            break
        early.append(spatial)
    return early, [(stage, number) for number, stage in enumerate(stages)][len(early) :]


def _with_products(
    plan: Plan, parameters: Parameters, cube: PaintedCube, painted: Float[Array, "y x column"]
) -> PaintedCube:
    """The products' images out of the moments after the last stage, and as painted, without the margin."""
    margin = (painted.shape[0] - plan.n_y) // 2
    inside = painted[margin : margin + plan.n_y, margin : margin + plan.n_x]
    images = ProductImages(inside, cube.moments[:, :, 2:], parameters.observation.velocity_offset)
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
