"""Whatever a run observes, it is one program over the devices of its mesh: compiled once, particles split along "data"
and all else whole, one sum over the devices for each pass, no table held inside, no axis of devices.

A rule is a function that refuses a program that breaks it; small programs, each of which breaks one, show that it does.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo import collectives, compiled_by, constant_bytes, equations, literal_bytes
from jax import lax
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr, tree_leaves_with_path
from quick_compiler import kept_programs
from test_distribution import disc
from test_observations import GALAXY as STARS_OF_ARMS
from test_observations import RUN as RUN_OF_ARMS
from test_observations import group_of, planned

from rubix_like import Galaxy, Gas, Pipeline, load_config, make_mesh

GOLDEN = Path(__file__).resolve().parents[1] / "surface" / "golden"


class Expected(NamedTuple):
    """What devices tell each other, where tables lie (by the end of their names) that are not whole on every device,
    where voxels do, and how many bytes the program may hold."""

    collectives: tuple[str, ...] = ("all-reduce",)
    tables: Mapping[str, P] = MappingProxyType({})
    voxels: P = P()
    constants: int = 1000


@dataclass(frozen=True)
class Program:
    """A compiled program, its arguments (tables, parameters, particles, key) and the `galaxy` that they are of."""

    mesh: Mesh
    arguments: tuple[Any, ...]
    galaxy: Any
    expected: Expected
    jaxpr: Any
    text: str
    inputs: Any
    outputs: Any

    @classmethod
    def of(cls, function: Any, arguments: tuple[Any, ...], galaxy: Any, mesh: Mesh, expected: Expected) -> "Program":
        traced = function.trace(*arguments)
        compiled = traced.lower().compile()
        lies = compiled.input_shardings[0], compiled.output_shardings
        return cls(mesh, arguments, galaxy, expected, traced.jaxpr, compiled.as_text(), *lies)


def named_leaves(tree):
    """Also those that are None, as are the shardings of arguments that a program does not read."""
    return [(keystr(path), leaf) for path, leaf in tree_leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)]


def lies(sharding, mesh, spec, n_axis):
    """Whether an array of `n_axis` axes lies on the mesh so, along the axes of this name."""
    if mesh.size == 1:
        return sharding.device_set == set(mesh.devices.flat)
    return sharding.is_equivalent_to(NamedSharding(mesh, spec), n_axis)


def check_inputs(program):
    """Particles along "data", by their first axis; tables as is expected of them; all else whole on every device."""
    tables = set()
    for (name, leaf), (_, sharding) in zip(named_leaves(program.arguments), named_leaves(program.inputs), strict=True):
        if sharding is None:
            continue
        spec = P("data", *[None] * (leaf.ndim - 1)) if name.startswith("[2]") else P()
        for end in program.expected.tables:
            if name.endswith(end):
                spec = program.expected.tables[end]
                tables.add(end)
        assert lies(sharding, program.mesh, spec, leaf.ndim), (name, sharding)
    assert tables == set(program.expected.tables)


def check_outputs(program):
    """Whole on every device, but for voxels that are to stay in parts."""
    for (path, sharding), of in zip(tree_leaves_with_path(program.outputs), program.jaxpr.out_avals, strict=True):
        spec = program.expected.voxels if ".voxels" in keystr(path) else P()
        assert lies(sharding, program.mesh, spec, of.ndim), (keystr(path), sharding)


def check_collectives(program):
    """One for each kind of sum and pass, and what today's stages need beside; none in a loop or a branch."""
    found = collectives(program.text)
    assert sorted(kind for kind, _ in found) == sorted(program.expected.collectives)
    assert {computation for _, computation in found} == {"ENTRY"}


OUTSIDE = {"shard_map", "sharding_constraint"}
"""Primitives that may stand outside of what each device does."""

ADDED_UP = {"psum", "psum_invariant", "reduce_scatter"}


def check_devices_axis(program):
    """No array has an axis of devices.

    A stack of devices' data comes about in four ways, each of which is looked for. It is an argument: here particles
    have the axes that they have in the caller's galaxy, the first one padded. It is made outside of `shard_map`: here
    nothing stands there but where results are to lie. It leaves `shard_map`: here no result is put together along its
    first axis. It is filled inside, by each device at its own place, and added up: here no summand is as long as there
    are devices. Chunks of a device's own particles, which are made inside and not added up over devices, are none.
    """
    n_device = program.mesh.shape["data"]
    columns = {keystr(path): np.shape(of) for path, of in tree_leaves_with_path(program.galaxy)}
    for path, leaf in tree_leaves_with_path(program.arguments[2]):
        _, *others = columns.get(keystr(path), (1,))  # padding has a weight, which the caller's galaxy has not
        assert list(leaf.shape[1:]) == others, keystr(path)
    found = list(equations(program.jaxpr))
    outside = {equation.primitive.name for equation, within in found if "shard_map" not in within}
    assert outside <= OUTSIDE
    for equation, within in found:
        if equation.primitive.name == "shard_map":
            first = [spec[0] for spec in equation.params["out_specs"] if len(spec) > 0]
            assert first == [None] * len(first)
        if "shard_map" in within and equation.primitive.name in ADDED_UP:
            shapes = [of.aval.shape for of in equation.invars]
            assert [shape for shape in shapes if shape[:1] == (n_device,)] == []


def check_constants(program):
    """Neither the function that is traced holds a table, nor what is compiled."""
    assert constant_bytes(program.jaxpr) <= program.expected.constants
    assert literal_bytes(program.text) <= program.expected.constants


CHECKS = (check_inputs, check_outputs, check_collectives, check_devices_axis, check_constants)


def refused(program):
    """The checks that refuse a program, and why."""
    found = {}
    for check in CHECKS:
        try:
            check(program)
        except AssertionError as error:
            found[check.__name__.removeprefix("check_")] = str(error)
    return found


def golden(name, **sections):
    """A configuration of `tests/surface/golden`, smaller still; particles pass in chunks, so that there are loops."""
    return load_config(GOLDEN / f"{name}.yaml", {"engine.chunk": 4, **sections})


TINY = {"instrument.fov": [1.0, 1.0], "instrument.wavelength.stop": 5030, "engine.method": "direct"}
POINTINGS = [{}, {"offset": [0.3, -0.2]}, {"offset": [-0.4, 0.1], "field_angle": 30, "name": "turned"}]


def galaxy_with_gas():
    """77 stars in 50 clouds of cold gas: neither 3 nor 8 divides them."""
    rng = np.random.default_rng(2)
    gas = Gas(
        position=rng.normal(size=(50, 3)) * [1.0, 1.0, 0.2],
        velocity=np.zeros((50, 3)),
        mass=rng.uniform(0.5, 1.5, 50) * 1e6,
        metallicity=rng.uniform(0.01, 0.03, 50),
        temperature=np.full(50, 100.0),
        smoothing_length=rng.uniform(0.5, 1.0, 50),
    )
    return Galaxy(stars=disc(77).stars, gas=gas)


class Observed(NamedTuple):
    """A galaxy, what observes it, and calls of that by name."""

    galaxy: Galaxy
    observe: Any
    calls: dict[str, Callable[[], Any]]


def alone(config, mesh, galaxy=None):
    """One field."""
    galaxy = disc(77) if galaxy is None else galaxy
    pipeline = Pipeline.from_config(config, galaxy, mesh=mesh)
    calls = {"the first": lambda: pipeline(galaxy), "a second": lambda: pipeline(galaxy)}
    return Observed(galaxy, group_of(pipeline), calls)


def arms(mesh):
    """Two arms of a spectrograph at three pointings, with maps and noise; of so many stars that no other test compiles
    their program."""
    galaxy = jax.tree.map(lambda column: column[:29], STARS_OF_ARMS)
    observation = {"observation": RUN_OF_ARMS["observation"] | {"pointings": POINTINGS}}
    sections = observation | {"products": {"losvd": {}}, "noise": {"signal_to_noise": 10}}
    both = planned(sections, mesh, alike=True)
    calls = {name: lambda: tuple(both.observe(galaxy).values()) for name in ("all pointings", "again")}
    return Observed(galaxy, group_of(both), calls)


FIBRES = {"instrument.fov": [9.0, 9.0], "instrument.fibres.rings": 1, "instrument.fibres.dithers": [[0.0, 0.0]]}
DUSTY = {"instrument.fov": [4.0, 4.0], "instrument.wavelength.stop": 5030, "engine.method": "direct", "dust.cells": 8}
DUSTY["products"] = {"losvd": None, "filters": ["sdss2010-g"], "gas": True}

RUNS = {
    "quickstart": (lambda mesh: alone(golden("quickstart", **TINY), mesh), Expected()),
    "dusty": (
        lambda mesh: alone(golden("dusty", **DUSTY), mesh, galaxy_with_gas()),
        Expected(("all-reduce", "all-reduce")),
    ),
    "fibres": (lambda mesh: alone(golden("fibres", **FIBRES), mesh), Expected()),
    "arms, mosaic": (arms, Expected()),
}
"""How a run is planned on a mesh, and what its program must be; one with fields (columns of dust) has two passes."""


def program_of(observed, mesh, expected):
    arguments = observed.observe.arguments(observed.galaxy)
    return Program.of(observed.observe.compiled(*arguments), arguments, observed.galaxy, mesh, expected)


def as_tuple(cubes):
    return cubes if isinstance(cubes, tuple) else (cubes,)


def check_compiled_once(calls):
    """The model is compiled by the first call, and nothing is by any other."""
    (_, first), *others = ((name, compiled_by(call)) for name, call in calls.items())
    assert sum(function.startswith("jit(observe") for function in first) == 1
    assert [(name, functions) for name, functions in others if functions] == []


@pytest.mark.parametrize(
    ("name", "n_device"), [("quickstart", 1), ("quickstart", 8), *((name, 3) for name in RUNS if name != "quickstart")]
)
def test_a_run_is_one_program(name, n_device, tmp_path):
    build, expected = RUNS[name]
    mesh = make_mesh(n_device)
    with kept_programs(tmp_path):
        observed = build(mesh)
        check_compiled_once(observed.calls)
        program = program_of(observed, mesh, expected)
    assert refused(program) == {}
    assert " while(" in program.text
    *_, call = observed.calls.values()
    cubes = call()
    for leaf in jax.tree.leaves([(own.flux, own.variance, own.counters) for own in as_tuple(cubes)]):
        assert lies(leaf.sharding, mesh, P(), leaf.ndim)


def in_parts(devices, **sections):
    """One field, on the devices that its settings ask for."""
    return alone(golden("quickstart", **{**TINY, **sections, "devices": devices}), None)


ALONG_WAVE = {
    ".rebinner.edges": P(("wave",)),
    ".rebinner.edges_low": P(("wave",)),
    ".rebinner.log_edges": P(("wave",)),
    ".response.matrix": P(None, None, ("wave",)),
    ".painter.on_detector": P(("wave",)),
}
NOISY = {"engine.method": "basis", "noise": {"signal_to_noise": 10}}

IN_PARTS = {
    "bins painted apart": (
        lambda: in_parts({"data": 2, "wave": 2, "output": "sharded"}),
        Expected(("all-reduce", "all-reduce", "reduce-scatter"), ALONG_WAVE, P(None, None, ("wave", "data"))),
    ),
    "a cube in parts": (
        lambda: in_parts({"data": 4, "output": "sharded"}, **NOISY),
        Expected(
            ("all-reduce", "all-gather", "reduce-scatter"),
            {".model.window": P(("data",))},
            P(None, None, ("data",)),
        ),
    ),
}
"""By `direct`, moments are sums over particles and bins, over more devices than counters are. A noise that follows the
brightest spaxel needs its light, a sum that XLA joins to that of the counters, and its spectrum, put together."""


@pytest.mark.parametrize("name", IN_PARTS)
def test_tables_and_voxels_lie_along_the_bins(name, tmp_path):
    """On meshes where cubes do; and each array of the program that lay elsewhere would be seen."""
    build, expected = IN_PARTS[name]
    with kept_programs(tmp_path):
        observed = build()
        check_compiled_once(observed.calls)
        program = program_of(observed, observed.observe.pipelines[0].mesh, expected)
    assert refused(program) == {}
    for which, check in (("inputs", check_inputs), ("outputs", check_outputs)):
        for number, (_, sharding) in enumerate(named_leaves(getattr(program, which))):
            if sharding is not None:
                other = elsewhere(program, which, number)
                with pytest.raises(AssertionError):
                    check(other)
    more = expected._replace(tables={**expected.tables, ".a_table_that_is_not_there": P("data")})
    assert refused(dataclasses.replace(program, expected=more)).keys() == {"inputs"}


def elsewhere(program, which, number):
    """The program with one of its arrays on other devices: a scalar on one, others whole where they are in parts and
    the other way round."""
    found, structure = jax.tree.flatten(getattr(program, which), is_leaf=lambda leaf: leaf is None)
    arrays = [leaf for _, leaf in named_leaves(program.arguments)]
    if which == "outputs":
        shapes = iter(program.jaxpr.out_avals)
        arrays = [None if own is None else next(shapes) for own in found]
    spec = P("data") if found[number].is_fully_replicated else P()
    other = NamedSharding(program.mesh, spec)
    if arrays[number].ndim == 0:
        other = SingleDeviceSharding(program.mesh.devices.flat[0])
    changed = structure.unflatten([other if place == number else own for place, own in enumerate(found)])
    return dataclasses.replace(program, **{which: changed})


N_DEVICE, N_BIN = 3, 198
TABLE = np.linspace(1.0, 2.0, N_BIN)
PARTICLES = {"position": np.ones((22, 3)), "mass": np.linspace(1.0, 2.0, 22)}


def light(tables, parameters, galaxy):
    """The light of a device's particles in bins."""
    return (galaxy["mass"] * galaxy["position"][:, 0] * parameters["scale"]).sum() * tables["response"]


def share(tables, parameters, galaxy, key):
    """What a device does of a small program that keeps all rules."""
    return lax.psum(light(tables, parameters, galaxy), "data") + jax.random.normal(key, N_BIN)


def padded(column):
    return np.concatenate([column, column[-1:].repeat(2, axis=0)])


WHOLE, SPLIT = P(), P("data")


def small(share=share, *, before=lambda galaxy: galaxy, after=lambda cube: cube, out=WHOLE, **places):
    """A small program: `share` on every device, `before` and `after` it what stands outside of `shard_map`; `places`:
    where tables, parameters, particles and key lie instead, and other particles."""
    mesh = make_mesh(N_DEVICE)
    particles = places.pop("particles", jax.tree.map(padded, PARTICLES))
    specs = {"tables": WHOLE, "parameters": WHOLE, "galaxy": SPLIT, "key": WHOLE} | places

    def observe(tables, parameters, galaxy, key):
        each = jax.shard_map(share, mesh=mesh, in_specs=(WHOLE, WHOLE, SPLIT, WHOLE), out_specs=out)
        return after(each(tables, parameters, before(galaxy), key))

    shardings = tuple(NamedSharding(mesh, spec) for spec in specs.values())
    arguments = {"response": TABLE}, {"scale": np.array(2.0)}, particles, jax.random.key(0)
    placed = tuple(map(jax.device_put, arguments, shardings))
    return Program.of(jax.jit(observe, in_shardings=shardings), placed, PARTICLES, mesh, Expected())


def holds_a_table(tables, parameters, galaxy, key):
    return share({"response": TABLE}, parameters, galaxy, key)


def sums_again(tables, parameters, galaxy, key):
    """A second sum, of the light relative to that of all devices."""
    own, total = light(tables, parameters, galaxy), share(tables, parameters, galaxy, key)
    return total + lax.psum(own / total, "data")


def sums_in_a_loop(tables, parameters, galaxy, key):
    def add(total, column):
        return total + lax.psum(light(tables, parameters, jax.tree.map(lambda own: own[None], column)), "data"), None

    return lax.scan(add, jnp.zeros(N_BIN), galaxy)[0] + jax.random.normal(key, N_BIN)


def sums_in_a_branch(tables, parameters, galaxy, key):
    """Where there is any light, as every device finds after a first sum."""
    own = light(tables, parameters, galaxy)
    total = share(tables, parameters, galaxy, key)
    return lax.cond(total[0] > 0, lambda own: lax.psum(own, "data"), lambda _: jnp.zeros(N_BIN), own)


def gathers(tables, parameters, galaxy, key):
    """Light relative to the heaviest particle of all devices."""
    heaviest = lax.all_gather(galaxy["mass"], "data", tiled=True).max()
    return lax.psum(light(tables, parameters, galaxy) / heaviest, "data") + jax.random.normal(key, N_BIN)


def exchanges(tables, parameters, galaxy, key):
    """Each device's masses cut among all devices."""
    mass = jnp.broadcast_to(galaxy["mass"], (N_DEVICE, 8)).reshape(24)
    mixed = lax.all_to_all(mass, "data", 0, 0, tiled=True)
    return share(tables, parameters, galaxy | {"mass": mixed[:8]}, key)


def sends_to_the_next(tables, parameters, galaxy, key):
    ring = [(place, (place + 1) % N_DEVICE) for place in range(N_DEVICE)]
    turned = jax.tree.map(lambda column: lax.ppermute(column, "data", ring), galaxy)
    return share(tables, parameters, turned, key)


def fills_its_place(tables, parameters, galaxy, key):
    """The light of each device in a row of its own, the rows added up by hand."""
    rows = jnp.zeros((N_DEVICE, N_BIN)).at[lax.axis_index("data")].set(light(tables, parameters, galaxy))
    return lax.psum(rows, "data").sum(axis=0) + jax.random.normal(key, N_BIN)


def by_device(column):
    return column.reshape(N_DEVICE, -1, *column.shape[1:])


def of_one_device(share):
    """For particles that enter as (device, particle)."""
    return lambda tables, parameters, galaxy, key: share(
        tables, parameters, jax.tree.map(lambda column: column[0], galaxy), key
    )


def unsummed(tables, parameters, galaxy, key):
    return light(tables, parameters, galaxy)[None] + jax.random.normal(key, (1, N_BIN))


def in_bins(cube):
    """The cube, left in parts on the devices."""
    return lax.with_sharding_constraint(cube, NamedSharding(make_mesh(N_DEVICE), SPLIT))


BROKEN = {
    "a table in the function": (lambda: small(holds_a_table), {"constants"}),
    "a second sum": (lambda: small(sums_again), {"collectives"}),
    "a sum in a loop": (lambda: small(sums_in_a_loop), {"collectives"}),
    "a sum in a branch": (lambda: small(sums_in_a_branch), {"collectives"}),
    "particles gathered": (lambda: small(gathers), {"collectives"}),
    "particles exchanged": (lambda: small(exchanges), {"collectives"}),
    "particles sent on": (lambda: small(sends_to_the_next), {"collectives"}),
    "particles whole on every device": (lambda: small(galaxy=WHOLE), {"inputs"}),
    "a cube in parts": (lambda: small(after=in_bins), {"outputs"}),
    "a galaxy by device": (
        lambda: small(of_one_device(share), particles=jax.tree.map(lambda own: by_device(padded(own)), PARTICLES)),
        {"devices_axis"},
    ),
    "a galaxy made one by device": (
        lambda: small(of_one_device(share), before=lambda galaxy: jax.tree.map(by_device, galaxy)),
        {"devices_axis"},
    ),
    "cubes by device, added up at the end": (
        lambda: small(unsummed, out=SPLIT, after=lambda cubes: cubes.sum(axis=0)),
        {"devices_axis"},
    ),
    "a place for each device": (lambda: small(fills_its_place), {"devices_axis"}),
}
"""Small programs that break a rule, and the checks that refuse them."""


def test_the_small_program_keeps_all_rules():
    assert refused(small()) == {}


def test_a_table_is_counted_in_the_function_and_in_what_is_compiled():
    program = small(holds_a_table)
    assert TABLE.nbytes <= constant_bytes(program.jaxpr) < TABLE.nbytes + 100
    assert TABLE.nbytes <= literal_bytes(program.text)
    assert max(constant_bytes(small().jaxpr), literal_bytes(small().text)) < 100


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_refused(name):
    build, checks = BROKEN[name]
    assert refused(build()).keys() == checks


def test_what_is_compiled_again_is_heard():
    """And a first call that compiles nothing, which proves nothing of the others."""

    @functools.partial(jax.jit, static_argnames="factor")
    def observe(table, factor):
        return table * factor

    calls = {which: lambda: observe(TABLE, factor=2.0) for which in ("the first", "a second")}
    check_compiled_once(calls)
    with pytest.raises(AssertionError, match=r"assert 0 == 1"):
        check_compiled_once(calls)
    for other in ((TABLE, 3.0), (TABLE[:-1], 2.0)):
        observe.clear_cache()
        with pytest.raises(AssertionError, match="another"):
            check_compiled_once({**calls, "another": functools.partial(observe, *other)})
