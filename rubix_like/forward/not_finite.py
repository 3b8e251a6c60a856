"""NaN and inf in cubes: found by one sum over the voxels, then traced back to the stage that made them first."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from rubix_like.cube.meta import SourceCounters
from rubix_like.forward.cube_header import Header
from rubix_like.forward.model import (
    FIELD_PASS,
    LIGHT_PASS,
    Group,
    PassInputs,
    finish,
    leading_spatial,
    on_devices,
    particles_by_pass,
    seen_through,
)
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import scene_of
from rubix_like.forward.stages.base import PaintedCube
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.placing import shard
from rubix_like.galaxy.scene import Scene
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, as_dtype, own_copy


class Model(NamedTuple):
    """The arguments of the compiled model but its particles."""

    plan: Plan
    layout: DeviceLayout
    tables: Tables
    parameters: Parameters
    key: PRNGKeyArray | None


def count_not_finite(
    frame: Header, voxels: tuple[Any, Any, Any], bits: Any, counters: dict[str, SourceCounters]
) -> Int[np.ndarray, "*n"]:
    """How many voxels without a mask bit have NaN, inf or a variance below 0, and how many particles have NaN or inf;
    `voxels`: flux, variance and truth (*n, y, x, wave; None: not there).

    Raises ValueError for a variance that is 0 in all voxels, some of which have light.
    """
    bad = voxels, frame.spaxel_bits == 0, frame.wave_bits == 0, bits
    is_bad, is_lost = map(np.asarray, own_copy(_judge(*bad)))
    if is_lost.any() and not is_bad.any():
        raise ValueError(
            f"noise: expected a variance above 0 in some voxels, got 0 in all (it is too small for {voxels[1].dtype}); "
            f"lower noise.signal_to_noise, or take another noise.exposure"
        )
    n_voxel = np.asarray(own_copy(_count(*bad)) if is_bad.any() else 0)  # a sum takes four bytes a voxel, "any" one
    n_particle = [np.asarray(own_copy(counter.n_not_finite)).astype(int) for counter in counters.values()]
    return np.asarray(sum(n_particle, start=n_voxel))


def _bad(voxels: tuple[Any, Any, Any], spaxels: Array, bins: Array, bits: Array | None) -> Bool[Array, "*n y x wave"]:
    """Whether a voxel of good `spaxels` and `bins` without a mask bit is NaN or inf, or its variance below 0."""
    flux, variance, truth = voxels
    arrays = [array for array in (flux, without_negative(variance), truth) if array is not None]
    bins = jnp.pad(bins, (0, arrays[0].shape[-1] - bins.size))  # parts may have bins beyond
    good = jnp.broadcast_to(spaxels[:, :, None] & bins[None, None], arrays[0].shape)
    good = good if bits is None else good & (bits == 0)
    return good & functools.reduce(jnp.logical_or, [~jnp.isfinite(array) for array in arrays])


@jax.jit
def _judge(voxels: tuple[Any, Any, Any], *masks: Any) -> tuple[Bool[Array, "*n"], Bool[Array, "*n"]]:
    """Whether cubes have a bad voxel; whether they have light, but a variance of 0 everywhere."""
    flux, variance, _ = voxels
    of_cube = (-3, -2, -1)
    is_bad = jnp.any(_bad(voxels, *masks), axis=of_cube)
    if variance is None:
        return is_bad, jnp.zeros_like(is_bad)
    return is_bad, jnp.any(flux != 0, axis=of_cube) & ~jnp.any(variance != 0, axis=of_cube)


@jax.jit
def _count(*voxels: Any) -> Int[Array, "*n"]:
    return jnp.sum(_bad(*voxels), axis=(-3, -2, -1))


def without_negative(variance: Array | None) -> Array | None:
    """The variance with NaN where it is below 0."""
    return None if variance is None else jnp.where(variance < 0, jnp.nan, variance)


def explain_not_finite(model: Model, galaxies: Callable[[], Iterable[Galaxy]], library: object) -> str:
    """A sentence on which parameter, field, source or stage makes NaN or inf first.

    `galaxies`: the particles again, as a whole or in slabs; `library`: name of the SSP library, if there is one.
    """
    for name, leaf in model.parameters.named().items():
        if not np.isfinite(own_copy(leaf)).all():
            return f"the parameter {name} is {own_copy(leaf)} in {model.plan.dtype}; give it a number within its range"
    for galaxy in galaxies():
        maker = first_maker(model, galaxy)
        if maker is not None:
            of = f" (SSP library '{library}')" if library and maker.startswith("source") else ""
            return f"the {maker}{of} makes them first; check its options and what it reads, or leave it out"
    return "the sum over all particles makes them; check the masses, or set engine.precision: float64"


def first_maker(model: Model, galaxy: Galaxy) -> str | None:
    """The first field, source or stage that makes NaN, inf or amounts below 0 of these particles; None for none."""
    plan, layout, tables, parameters, key = model
    makers: list[str] = []
    group, inputs = Group.of(plan, layout), PassInputs.of(tables, parameters, key)
    flagged, whole = functools.partial(_flags, group, makers), PartitionSpec()
    traced = on_devices(flagged, group, inputs.tables, (PartitionSpec(DATA_AXIS),), whole, check_vma=False)
    particles = particles_by_pass(tables, shard(as_dtype(galaxy, plan.dtype), layout.mesh))
    flags = np.asarray(own_copy(jax.jit(traced)(inputs, particles)))
    return next((maker for maker, is_bad in zip(makers, flags, strict=True) if is_bad), None)


def _flags(
    group: Group, makers: list[str], inputs: PassInputs, particles: tuple[tuple[Any, ...], ...]
) -> Int[Array, " maker"]:
    """Run the model step by step on every device; `makers` gets the name of each step while this is traced."""
    (plan,), (layout,), _ = group
    (tables,), (parameters,), (key,), _ = inputs
    flags: list[Array] = []

    def note(maker: str, tree: Any) -> None:
        makers.append(maker)
        leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        flags.append(
            functools.reduce(jnp.logical_or, [~jnp.isfinite(leaf).all() for leaf in leaves], jnp.asarray(False))
        )

    scenes = [
        scene_of(source, shining, tables.alignment, tables.arcsec_per_kpc)
        for source, shining in zip(tables.paint, particles[-1], strict=False)
    ]
    for name, scene in zip(plan.sources, scenes, strict=True):
        note(f"source '{name}'", _real_particles(scene))

    def staged(*, reads: bool) -> None:
        for number, stage in enumerate(tables.scene):
            if bool(stage.reads) is reads:
                scenes[:] = [tables.scene_after(number, scene, parameters) for scene in scenes]
                note(f"stage '{tables.scene_names[number]}'", [_real_particles(scene) for scene in scenes])

    staged(reads=False)
    if tables.fields:
        added = FIELD_PASS.added(group, inputs, particles[0])
        inputs = inputs._replace(fields=FIELD_PASS.finish(group, inputs, added))
    fields = inputs.fields
    for name, field in fields.items():
        note(f"field '{name}'", field)
    scenes = [dataclasses.replace(scene, fields=fields) for scene in scenes]
    staged(reads=True)
    for name, source, scene in zip(plan.sources, tables.paint, scenes, strict=True):
        note(f"source '{name}'", _real_particles(source.shine(scene, parameters)))
    (partial,) = LIGHT_PASS.added(group, inputs, particles[-1])
    painters = [source.painter_for(parameters) for source in tables.paint]
    for name, painter, light in zip(plan.sources, painters, partial.light, strict=True):
        note(f"source '{name}'", painter.project(light, seen_through(tables.grid, []), layout))
    n_early = len(leading_spatial(tables, parameters)[0])

    def watch(number: int, cube: PaintedCube) -> None:
        names = tables.cube_names[0 if number == n_early else number - 1 : number]
        if names:
            bits = 0 if cube.bits is None else cube.bits
            arrays = [cube.flux, without_negative(cube.variance), cube.truth]
            good = [jnp.where(bits == 0, array, 0) for array in arrays if array is not None]
            note(f"stage '{', '.join(names)}'", good)

    finish(plan, layout, tables, parameters, fields, partial, key, watch)
    return lax.pmax(jnp.stack(flags).astype(jnp.int32), layout.mesh.axis_names)


def _real_particles(scene: Scene) -> list[Array]:
    """The painted numbers of a scene, 0 of padding, NaN in place of an amount below 0."""
    amount = jnp.where(scene.amount < 0, jnp.nan, scene.amount)
    columns = (*scene.position.T, scene.v_los, amount, *scene.coordinates.values())
    return [jnp.where(scene.weight > 0, column, 0) for column in columns]
