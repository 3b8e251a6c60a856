"""The detector's bins over devices: the same cube and gradient however they are spread, and never a whole cube on one.

The rows of `test_distribution`, for cubes in parts along wavelength and for meshes of two axes.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo import collectives
from jax.sharding import AxisType, PartitionSpec
from test_distribution import (
    CHUNK,
    CUBE_TOLERANCE,
    FAST_COMPILER,
    GRADIENT_TOLERANCE,
    WHOLE,
    assert_same_cube,
    assert_same_gradient,
    config,
    disc,
    relative_difference,
    weighted_sum,
)

from rubix_like import ConfigError, Galaxy, Pipeline, load_config, load_cube, make_mesh, run
from rubix_like.extend import BinSplit
from rubix_like.forward.model import lay_out, table_specs
from rubix_like.forward.planning import plan_layout
from rubix_like.runtime.mesh.mesh import DeviceLayout, put

LAYOUTS = {
    "parts on all devices": {"data": 8, "output": "sharded"},
    "two axes": {"data": 4, "wave": 2, "output": "sharded"},
    "each device its own bins": {"data": 1, "wave": 8},
    "painted apart, put together": {"data": 2, "wave": 4, "output": "replicated"},
    "five devices": {"data": 5, "output": "sharded"},
}
ONE = {"data": 1}
UNEVEN, EVEN = "4950 Angstrom", "4955 Angstrom"
"""Ends of the detector that make 31 and 32 bins."""


@functools.cache
def pipeline_for(method, layout, stop=UNEVEN, chunk=CHUNK):
    own = {"devices": ONE if layout is None else LAYOUTS[layout], "instrument.wavelength.stop": stop}
    settings = load_config(config(method, chunk=chunk), overrides=own)
    return Pipeline.from_config(settings, disc(77))


@functools.cache
def cube_of(*how):
    return pipeline_for(*how)(disc(77))


@functools.cache
def gradient_of(method, layout):
    pipeline = pipeline_for(method, layout)
    gradient = jax.grad(lambda arguments: weighted_sum(pipeline(*arguments).flux))
    arguments = (disc(77), pipeline.parameters)
    return jax.tree.map(np.asarray, jax.jit(gradient, compiler_options=FAST_COMPILER)(arguments))


def rows(*quick, long=()):
    """Both methods in all layouts; those that are neither `quick` nor `long` run with --slow."""
    every = [(method, layout) for method in ("direct", "basis") for layout in LAYOUTS if layout != "five devices"]
    assert {*quick, *long} <= set(every)
    marks = dict.fromkeys(every, pytest.mark.slow) | dict.fromkeys(long, pytest.mark.long) | dict.fromkeys(quick, ())
    return [pytest.param(*row, marks=mark) for row, mark in marks.items()]


REPEATS = (("basis", "two axes"), ("basis", "each device its own bins"), ("direct", "each device its own bins"))
"""Left to --long: layouts whose parts, sums and exchanges are those of the other rows."""
CUBE_REPEATS = (*REPEATS, ("direct", "parts on all devices"), ("basis", "painted apart, put together"))
HELD_REPEATS = (*REPEATS, ("basis", "parts on all devices"), ("direct", "painted apart, put together"))
GRADIENT_REPEATS = (
    *REPEATS,
    ("direct", "parts on all devices"),
    ("direct", "painted apart, put together"),
    ("basis", "painted apart, put together"),
    ("basis", "parts on all devices"),
)


@pytest.mark.parametrize(
    ("method", "layout"), rows(("direct", "two axes"), ("basis", "parts on all devices"), long=CUBE_REPEATS)
)
def test_cube_is_that_of_one_device(method, layout):
    """31 bins, which no number of parts divides: flux, variance (noise is on), mean velocity and counters."""
    found = cube_of(method, layout)
    assert found.flux.shape == found.mask.shape == (6, 6, 31)
    assert_same_cube(found, cube_of(method, None, UNEVEN, WHOLE), CUBE_TOLERANCE["float64"])


@pytest.mark.parametrize(("method", "layout"), rows(("direct", "parts on all devices"), long=HELD_REPEATS))
def test_each_device_holds_its_own_bins(method, layout):
    """32 bins: the cube stays on the devices, and no array of the program is as large as the whole of it."""
    pipeline, settings = pipeline_for(method, layout, EVEN), LAYOUTS[layout]
    program, n_device = pipeline.lower(disc(77)).compile(), settings["data"] * settings.get("wave", 1)
    cube = pipeline.to_cube(program(*pipeline.arguments(disc(77))))
    in_parts = settings.get("output") != "replicated"
    for voxels in (cube.flux, cube.variance):
        assert voxels.sharding.shard_shape(voxels.shape) == (6, 6, 32 // n_device if in_parts else 32)
        assert len(voxels.sharding.device_set) == n_device
    assert (largest_along_bins(program.as_text(), 6 * 6) >= 32) == (not in_parts)


def largest_along_bins(text, n_spaxel):
    """The most bins of all arrays of a program whose other axes are the field's spaxels."""
    shapes = [[int(n) for n in shape.split(",")] for shape in re.findall(r"\bf64\[([0-9,]+)\]", text)]
    return max(shape[-1] for shape in shapes if int(np.prod(shape[:-1])) == n_spaxel)


@pytest.mark.parametrize(("method", "layout"), rows(long=GRADIENT_REPEATS))
def test_gradient_is_that_of_one_device(method, layout):
    assert_same_gradient(gradient_of(method, layout), gradient_of(method, None), GRADIENT_TOLERANCE["float64"])


@pytest.mark.long
@pytest.mark.parametrize("stop", [UNEVEN, pytest.param(EVEN, marks=pytest.mark.long)], ids=["31 bins", "32 bins"])
@pytest.mark.parametrize("method", ["direct", pytest.param("basis", marks=pytest.mark.long)])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.long)])
def test_gradient_outside_of_jit_is_that_of_one_device(method, stop, compiled):
    """Of all bins, and of a cut through them: cotangents then lie elsewhere than the parts of the cube."""

    def gradient(layout, compiled):
        pipeline = pipeline_for(method, layout, stop)

        def score(stars):
            flux = pipeline(Galaxy(stars)).flux
            return (flux**2).sum() + (flux[:, :, 3:11] ** 2).sum()

        found = jax.jit(jax.grad(score), compiler_options=FAST_COMPILER) if compiled else jax.grad(score)
        return jax.tree.map(np.asarray, found(disc(77).stars))

    found = gradient("parts on all devices", compiled)
    assert_same_gradient(found, gradient(None, compiled=True), GRADIENT_TOLERANCE["float64"])


MOVING = ("all-gather", "reduce-scatter", "all-to-all", "collective-permute")


BY_ROWS = {
    "instrument.wavelength.step": "0.5 Angstrom",
    "instrument.lsf": None,
    "engine.tolerance": 0.02,
    "noise": None,
}
"""For `basis`: fewer coefficients (56) than bins (301), but more than the bins of one of eight parts."""


@functools.cache
def many_bins(layout):
    devices = ONE if layout is None else LAYOUTS[layout]
    return Pipeline.from_config(load_config(config("basis"), overrides={**BY_ROWS, "devices": devices}), disc(77))


def test_a_run_writes_the_parts(tmp_path):
    """The file of a run whose cube lies in five parts of 31 bins is that of one device; so is the cube given."""
    found, files = [], []
    for name, devices in (("parts", LAYOUTS["five devices"]), ("whole", ONE)):
        path = tmp_path / f"{name}.fits"
        galaxy = {"galaxy.reader": "synthetic", "galaxy.n_stars": 77, "devices": devices}
        found.append(run(load_config(config(), overrides=galaxy), path))
        files.append(load_cube(path))
    for one, other in (found, files, (found[0], files[1])):
        assert relative_difference(one.flux, other.flux) < 1e-6
        np.testing.assert_array_equal(one.mask, other.mask)
    assert relative_difference(found[0].flux, found[1].flux) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "by_rows", "moving"),
    [
        ("parts on all devices", True, ["all-to-all", "reduce-scatter"]),
        pytest.param("five devices", False, [], marks=pytest.mark.long),
        pytest.param("painted apart, put together", False, ["all-gather"], marks=pytest.mark.long),
    ],
)
def test_coefficients_are_added_up_by_rows_where_that_moves_less(layout, by_rows, moving):
    """Each device projects its own spaxels and trades them for its own bins; or coefficients are summed on all."""
    pipeline = many_bins(layout)
    assert pipeline.tables.paint[0].painter.by_rows == by_rows
    assert relative_difference(pipeline(disc(77)).flux, many_bins(None)(disc(77)).flux) < 1e-12
    found = collectives(pipeline.lower(disc(77)).compile().as_text())
    assert sorted(kind for kind, _ in found if kind in MOVING) == moving
    assert {computation for _, computation in found} == {"ENTRY"}
    gradients = [
        jax.jit(jax.grad(lambda own, one=one: weighted_sum(one(own).flux)), compiler_options=FAST_COMPILER)(disc(77))
        for one in (pipeline, many_bins(None))
    ]
    assert_same_gradient(*jax.tree.map(np.asarray, gradients), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", [pytest.param("each device its own bins", marks=pytest.mark.long), "parts on all devices"]
)
def test_coefficients_of_slabs_are_those_of_all_particles(layout):
    """Of more coefficients than a device has bins, spectra are painted, although all bins are more."""
    pipeline = many_bins(layout)
    found, expected = pipeline.observe_slabs([disc(77)]), pipeline(disc(77))
    assert relative_difference(found.flux, expected.flux) < 1e-12
    assert relative_difference(found.mean_v_los, expected.mean_v_los) < 1e-12


def test_a_mesh_of_the_caller():
    """Two axes on devices of its own; what is written in the configuration about the output holds."""
    mesh = make_mesh(2, wave=3)
    assert dict(mesh.shape) == {"data": 2, "wave": 3}
    pipeline = Pipeline.from_config(config(), disc(77), mesh=mesh)
    assert pipeline.layout.split.n_shard == 6
    assert pipeline.tables.paint[0].painter.response.matrix.sharding.spec == PartitionSpec(None, None, ("wave",))


@pytest.mark.parametrize("output", [None, "sharded", "replicated"])
def test_a_mesh_without_the_axis_of_the_particles_is_refused(output):
    mesh = jax.make_mesh((2,), ("galaxies",), axis_types=(AxisType.Auto,))
    with pytest.raises(ConfigError, match=r"mesh: expected the axis 'data'.*got \('galaxies',\)"):
        plan_layout(load_config("quickstart", overrides={"devices.output": output}).devices, mesh, 31, ())


def test_devices_share_the_bins_where_projecting_takes_longer_than_putting_together():
    devices, large, small = load_config("quickstart").devices, ((10_000, 3000),), ((10_000, 300),)
    shared = plan_layout(devices, make_mesh(4), 3001, large)
    assert shared.gathered
    assert (shared.painted, shared.split) == (BinSplit(), BinSplit(3001, 4, ("data",)))
    for mesh, projected in ((make_mesh(4), small), (make_mesh(4), ()), (make_mesh(1), large)):
        assert plan_layout(devices, mesh, 3001, projected).split.is_whole


def test_own_bins_of_what_is_painted():
    """On two axes: of the bins along "wave", those of the place along "data"."""
    mesh = make_mesh(4, wave=2)
    layout = DeviceLayout.build(mesh, 31, sharded=True)
    bins = np.arange(2.0 * 32).reshape(2, 32)
    own = jax.shard_map(
        layout.own_bins,
        mesh=mesh,
        in_specs=PartitionSpec(None, layout.painted.axes),
        out_specs=PartitionSpec(None, layout.split.axes),
    )
    np.testing.assert_array_equal(jax.jit(own)(bins), bins)


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("direct", marks=pytest.mark.long), "basis"])
def test_shared_bins_are_those_of_one_device(method):
    """Each of eight devices finishes its own of 31 bins, and every one gets the whole cube."""
    one, layout = pipeline_for(method, None), DeviceLayout.build(make_mesh(8), 31, sharded=False, shared=True)
    tables = jax.tree.map(jnp.asarray, lay_out(one.tables, layout))
    tables = put(tables, layout.shardings(table_specs(tables, layout)))
    found = dataclasses.replace(one, layout=layout, tables=tables)(disc(77))
    assert found.flux.sharding.is_fully_replicated
    assert len(found.flux.sharding.device_set) == 8
    assert_same_cube(found, cube_of(method, None), CUBE_TOLERANCE["float64"])


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"data": 4, "wave": 3}, r"devices.data: expected 'all' or 1 to 2 \(8 devices over devices.wave, 3\), got 4"),
        ({"wave": 9}, r"devices.wave: expected 1 to 8 \(the devices of this run\), got 9"),
        ({"wave": 0}, "devices.wave"),
        ({"output": "scattered"}, "devices.output"),
    ],
)
def test_settings_that_cannot_be(devices, message):
    with pytest.raises(ConfigError, match=message):
        Pipeline.from_config({**config().model_dump(mode="json"), "devices": devices}, disc(77))
