"""Galaxies in slabs: the same cube as from all particles at once, no word between devices but once, little memory.

Programs are shared: all slabs of most tests have at most 8 stars, one for each device.
"""

import functools
import itertools
import subprocess
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest
from astropy.io import fits
from hlo import collectives
from small import BLUR, muse
from test_distribution import relative_difference
from test_observations import GALAXY, group_of, planned
from test_stored_galaxy import write
from thread_team import run_team, values_of

import rubix_like.runtime.memory as memory_module
from rubix_like import ConfigError, Galaxy, Pipeline, load_config, load_galaxy, load_galaxy_info, make_mesh
from rubix_like.extend import AbstractSource, Progress, resolve
from rubix_like.forward.programs import Group, PassInputs, compile_programs, passes_of, sum_slabs
from rubix_like.galaxy.galaxy_parts import GalaxyInMemory, SlabCuts, place_slabs, read_ahead
from rubix_like.runs.observers import check_columns
from rubix_like.runs.particles_on_disk import GalaxyInSlabs, HeldGalaxy, open_source
from rubix_like.runs.run import check_lines, compute, prepare
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup, least_share

REPOSITORY = Path(__file__).resolve().parents[2]

TOLERANCE = {"float32": 5e-6, "float64": 1e-12}
N_STARS, SLAB = 77, 8
CUTS = (0, 8, 8, 13, 21, 29, 37, 45, 53, 61, 69, 77)
"""Slabs of 8 stars, of none, and of fewer than there are devices."""

ROWS = [("direct", "float32", False)] + [
    pytest.param(method, precision, sharded, marks=mark)
    for method, precision, sharded, mark in (
        ("direct", "float64", False, pytest.mark.long),
        ("basis", "float32", False, pytest.mark.long),
        ("basis", "float64", False, pytest.mark.long),
        ("direct", "float32", True, pytest.mark.long),
        ("basis", "float64", True, pytest.mark.long),
    )
]


def settings(method="direct", precision="float32", sharded=False, **sections):
    """`sharded`: two parts of the bins, each painted by four devices, every device with its own part of the cube."""
    devices = {"data": 4, "wave": 2, "output": "sharded"} if sharded else {}
    base = {
        "galaxy": {"reader": "synthetic", "n_stars": N_STARS, "n_gas": 5},
        "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0},
        "instrument": muse(4800, 4950, "5 Angstrom", fov="0.8 arcsec", **BLUR),
        "engine": {"method": method, "precision": precision, "chunk": 16},
        "noise": {"signal_to_noise": 30, "seed": 3},
        "devices": devices,
    }
    return load_config({**base, **{name: {**base.get(name, {}), **own} for name, own in sections.items()}})


@functools.cache
def galaxy():
    return jax.tree.map(np.asarray, load_galaxy(settings()))


@functools.cache
def pipeline_for(method="direct", precision="float32", sharded=False):
    return Pipeline.from_config(settings(method, precision, sharded), galaxy())


@functools.cache
def whole_cube(method="direct", precision="float32", sharded=False):
    return pipeline_for(method, precision, sharded)(galaxy())


def part(start, stop):
    own = galaxy()
    return Galaxy(stars=jax.tree.map(lambda leaf: leaf[start:stop], own.stars), gas=own.gas)


def slabs_of(cuts):
    return (part(*own) for own in itertools.pairwise(cuts))


def assert_same_cube(found, expected, tolerance):
    for name in ("flux", "variance", "mean_v_los"):
        assert relative_difference(getattr(found, name), getattr(expected, name)) < tolerance, name
    for name, count in vars(expected.counters).items():
        np.testing.assert_allclose(getattr(found.counters, name), count, rtol=tolerance, err_msg=name)


@pytest.mark.parametrize(("method", "precision", "sharded"), ROWS)
def test_slabs_make_the_cube_of_the_whole_galaxy(method, precision, sharded):
    """Noise included, on eight devices; the cube lies where the other one lies."""
    cube, whole = (make(method, precision, sharded) for make in (cube_of_slabs, whole_cube))
    assert cube.flux.dtype == np.dtype(precision)
    assert_same_cube(cube, whole, TOLERANCE[precision])
    assert float(cube.counters.n_particles) == N_STARS
    if isinstance(whole.flux, jax.Array):
        assert cube.flux.sharding == whole.flux.sharding


@functools.cache
def cube_of_slabs(method="direct", precision="float32", sharded=False):
    return pipeline_for(method, precision, sharded).observe_slabs(slabs_of(CUTS))


def sums_of(slabs):
    """What every device has painted in the end, as arrays."""
    pipeline = pipeline_for()
    group, inputs = Group.of(pipeline.plan, pipeline.layout), PassInputs.of(pipeline.tables, *pipeline.chosen())
    placed = place_slabs(slabs, pipeline.plan.dtype, pipeline.mesh, with_gas=False)
    _, (sums,) = sum_slabs(*passes_of(pipeline.tables), group, [inputs], placed)
    return [np.asarray(own, np.float64) for own in sums]


def test_two_hundred_slabs_lose_nothing():
    """The worst case of a sum in float32: the same numbers again and again are always rounded the same way."""
    once = sums_of([part(0, 8)])
    for often, expected in zip(sums_of(part(0, 8) for _ in range(200)), once, strict=True):
        np.testing.assert_allclose(often, 200 * expected, rtol=1e-6)


@pytest.mark.slow(8)
def test_arms_together_in_slabs():
    """The galaxy twice, as two slabs: twice the light in every arm, with as many sums over devices as of it at once."""
    arms = group_of(planned({"products": {"losvd": None}}, alike=True))
    tables, parameters, placed, keys = arms.arguments(GALAXY)
    inputs, group = PassInputs(tables, parameters, keys, {}), arms.group
    (programs,) = compile_programs(group, inputs, placed)
    at_once = arms.lower(GALAXY).compile()
    assert collectives(programs.add.as_text()) == []
    assert collectives(programs.finish.as_text()) == collectives(at_once.as_text()) != []
    _, (sums,) = sum_slabs(*passes_of(tables[0]), group, [inputs], [placed, placed], programs)
    found, expected = programs.finish(sums, inputs), at_once(tables, parameters, placed, keys)
    for own, whole in zip(found, expected, strict=True):
        flux = 2 * np.asarray(whole.voxels.flux)
        np.testing.assert_allclose(own.voxels.flux, flux, rtol=0, atol=1e-12 * flux.max())
        np.testing.assert_allclose(own.products.before, 2 * whole.products.before, rtol=1e-12, atol=1e-12 * flux.max())


# ---------------------------------------------------------------- the run


@functools.cache
def prepared_run():
    return prepare(settings(engine={"slab": SLAB}), Progress())


def test_devices_hear_of_each_other_once():
    """Adding a slab has no collective and takes the place of the sums before; finishing has one, outside any loop."""
    (programs,) = prepared_run().observer.program.programs
    start, add, rounded, finish = (
        program.as_text() for program in (programs.start, programs.add, programs.rounded, programs.finish)
    )
    assert collectives(start) == collectives(add) == collectives(rounded) == []
    assert collectives(finish) == [("all-reduce", "ENTRY")]
    memory = programs.add.memory_analysis()
    assert memory.output_size_in_bytes - 200 < memory.alias_size_in_bytes <= memory.output_size_in_bytes


def test_a_run_by_slabs_is_that_of_all_at_once():
    """Ten slabs of 7 or 8 stars; what `check` says of it; its progress."""
    prepared = prepared_run()
    lines = [line for line in check_lines(prepared) if line.startswith("particles ")]
    assert lines == ["particles   10 slabs of at most 8 stars, each read while the one before is painted"]
    ((_, cube),) = prepared.observer.cubes(Progress())
    assert_same_cube(cube, whole_cube(), TOLERANCE["float32"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [30, pytest.param(10**6, marks=pytest.mark.long)])
def test_pointings_maps_and_files_of_a_run_by_slabs(tmp_path, size):
    """One pass for two pointings, or one for each: the same cubes, maps and mosaic as of all stars at once."""
    pointings = {"pointings": [{"offset": [0, 0]}, {"offset": ["0.4 arcsec", 0]}]}
    for slab in ("all", size):
        config = settings(observation=pointings, products={"losvd": {}}, engine={"slab": slab})
        (tmp_path / str(slab)).mkdir()
        compute(config, tmp_path / str(slab) / "cube.fits", Progress())
        assert_same_files(tmp_path / str(slab), tmp_path / "all")
    with prepare(settings(observation=pointings, engine={"slab": size}), Progress()) as prepared:
        program = prepared.observer.program
        assert program.n_pass == 2
        apart = replace(prepared.observer, program=replace(program, n_pass=1))
        both, each = (list(own.cubes(Progress())) for own in (prepared.observer, apart))
    for (name, cube), (name_apart, cube_apart) in zip(both, each, strict=True):
        assert name == name_apart
        np.testing.assert_array_equal(cube.flux, cube_apart.flux)
    assert relative_difference(both[0][1].flux, both[1][1].flux) > 0.1


def assert_same_files(folder, expected):
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["cube.fits", "cube_1.fits", "cube_2.fits", "cube_maps_1.fits", "cube_maps_2.fits"]
    for path in folder.iterdir():
        with fits.open(path) as found, fits.open(expected / path.name) as whole:
            for own, other in zip(found, whole, strict=True):
                assert own.name == other.name
                if own.data is not None and own.data.dtype.kind == "f":
                    np.testing.assert_allclose(
                        own.data, other.data, rtol=1e-4, atol=1e-4 * np.abs(np.nan_to_num(other.data)).max()
                    )


# ---------------------------------------------------------------- when a galaxy comes in slabs


def memory_of(path, monkeypatch, n_bytes):
    """A computer with so much memory to give."""
    path.write_text(f"MemTotal: 1 kB\nMemAvailable: {n_bytes // 1024} kB\n")
    monkeypatch.setattr(memory_module, "_MEMINFO", path)


def source_of(path, slab="auto", team=SINGLE, **selection):
    config = load_config(
        {
            "galaxy": {"reader": "illustris", "path": str(path), **selection},
            "observation": {"redshift": 0.1},
            "instrument": {"name": "muse", "fov": "1 arcsec", "wavelength": {"start": 5000, "stop": 5010, "step": 5}},
            "engine": {"slab": slab},
        }
    )
    with ExitStack() as files:
        return open_source(config, resolve(config), files, lambda *report: None, team)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A snapshot of 700 stars, 622 of them no wind cells."""
    return write(tmp_path_factory.mktemp("streaming") / "snap.hdf5", 700, 90)


def test_whether_a_galaxy_comes_in_slabs_is_decided_by_the_memory(path, tmp_path, monkeypatch):
    """400 bytes for every star of the file may take half of what there is."""
    assert isinstance(source_of(path), HeldGalaxy)
    memory_of(tmp_path / "meminfo", monkeypatch, 400 * 700 * 2 + 2048)
    assert isinstance(source_of(path), HeldGalaxy)
    memory_of(tmp_path / "meminfo", monkeypatch, 400 * 600 * 2)
    source = source_of(path)
    assert isinstance(source, GalaxyInSlabs)
    assert (source.parts.n_stars, source.census.n_stars, source.parts.n_gas) == (622, 622, 90)
    assert isinstance(source_of(path, "all"), HeldGalaxy)
    assert isinstance(source_of(path, smoothing_length="neighbours"), HeldGalaxy)
    few = source_of(path, sphere={"center": [5e4, 5e4, 5e4], "radius": 20})
    assert isinstance(few, HeldGalaxy)
    assert len(few.galaxy.stars.mass) == few.info.n_stars < 600
    assert len(few.galaxy.gas.mass) == few.info.n_gas


def test_slabs_that_are_asked_for(path):
    source = source_of(path, 100)
    assert (source.size, source.census.n_stars) == (100, 622)
    with pytest.raises(ConfigError, match="neighbours need all stars at once"):
        source_of(path, 100, smoothing_length="neighbours")
    synthetic = prepared_run()
    assert synthetic.info.n_stars == synthetic.observer.program.parts.n_stars == N_STARS


@dataclass(frozen=True)
class Share(AbstractProcessGroup):
    """One of several processes that never speak."""

    number: int
    size: int

    def exchange(self, work):
        raise AssertionError("nothing to say")


@pytest.mark.parametrize(("n_process", "size"), [(1, 10), (1, 1000), (3, 10), (3, 7), (100, 10)])
def test_cuts_cover_every_particle_once_and_every_process_has_as_many(n_process, size):
    own = galaxy()
    parts = GalaxyInMemory(own, load_galaxy_info(settings()))
    cuts = [SlabCuts.of(parts, size, with_gas=True, team=Share(number, n_process)) for number in range(n_process)]
    assert len({(cut.n_slab, cut.size) for cut in cuts}) == 1
    slabs = [slab for cut in cuts for slab in cut.read(parts)]
    for kind in ("stars", "gas"):
        found = [getattr(slab, kind).position for slab in slabs]
        np.testing.assert_array_equal(np.concatenate(found), getattr(own, kind).position)
        assert max(map(len, found)) <= size
    assert all(
        max(len(slab.stars.position), len(slab.gas.position)) <= cut.size for cut in cuts for slab in cut.read(parts)
    )


def test_processes_agree_on_slabs_by_the_memory_of_the_one_with_the_least(path, tmp_path, monkeypatch):
    """Three on one computer share its memory; shares of 207 and 208 stars are cut into as many slabs."""
    memory_of(tmp_path / "meminfo", monkeypatch, 400 * 600 * 2)
    whole = source_of(path)
    for own in values_of(run_team(3, lambda team: source_of(path, team=team))):
        assert isinstance(own, GalaxyInSlabs)
        assert (own.size, own.census.n_stars) == (whole.size, 622)
        assert own.census.sums.mass == pytest.approx(whole.census.sums.mass, rel=1e-13)
    memory_of(tmp_path / "meminfo", monkeypatch, 400 * 700 * 2 + 4096)
    held = values_of(run_team(3, lambda team: source_of(path, team=team)))
    assert [len(own.galaxy.stars.mass) for own in held] == [207, 207, 208]
    assert [len(own.galaxy.gas.mass) for own in held] == [30, 30, 30]
    in_slabs = values_of(run_team(3, lambda team: source_of(path, 69, team=team)))
    cuts = [SlabCuts.of(own.parts, own.size, with_gas=True, team=own.team) for own in in_slabs]
    assert {(cut.n_slab, cut.size) for cut in cuts} == {(4, 52)}
    assert least_share([("a", 90), ("a", 80), ("b", 70), ("c", None)]) == 40
    assert least_share([("a", None)]) is None


def test_processes_with_other_columns_are_refused():
    def check(team):
        own = part(team.number, team.number + 1)
        if team.number == 1:
            own = eqx.tree_at(lambda g: g.stars.mass, own, np.ones(1), is_leaf=lambda leaf: leaf is None)
        check_columns(own, team)

    for error in run_team(2, check):
        with pytest.raises(ValueError, match=r"columns of process 0 .*got .*stars.mass.* in process 1"):
            raise error


class Glow(AbstractSource):
    """Gas that is read, and never painted."""

    painter: None = None
    kind: ClassVar[str] = "gas"

    @classmethod
    def plan(cls, setup, options):
        raise NotImplementedError

    @classmethod
    def build(cls, setup, plan, options):
        raise NotImplementedError

    def scene(self, particles, alignment, arcsec_per_kpc):
        raise NotImplementedError


def test_gas_is_read_only_where_something_reads_it():
    """Gas in slabs: `test_observations`, with its maps."""
    tables = pipeline_for().tables
    assert not tables.reads_gas
    assert replace(tables, paint=(*tables.paint, Glow())).reads_gas
    assert prepared_run().observer.program.cuts.gas is None


def test_slabs_of_different_galaxies_are_refused():
    without = eqx.tree_at(lambda g: g.stars.mass, part(0, 8), np.ones(8), is_leaf=lambda leaf: leaf is None)
    with pytest.raises(
        ValueError,
        match=r"slab 2: expected the columns of the slabs before, stars.position.*got stars.position.*stars.mass",
    ):
        pipeline_for().observe_slabs([part(0, 8), without])
    with pytest.raises(ValueError, match="slabs: expected at least one, got none"):
        pipeline_for().observe_slabs([])


def test_placed_slabs_have_one_size_and_numbers_that_are_finite():
    """Like the last particle without weight; where there is none, 1 in everything."""
    slabs = list(place_slabs(slabs_of((0, 40, 40, 45)), "float32", make_mesh(8), with_gas=False))
    assert [slab.stars.position.shape for slab in slabs] == [(40, 3)] * 3
    assert [float(slab.stars.weight.sum()) for slab in slabs] == [40, 0, 5]
    assert all(np.isfinite(leaf).all() for slab in slabs for leaf in jax.tree.leaves(slab))
    np.testing.assert_array_equal(slabs[2].stars.log_age[5:], slabs[2].stars.log_age[4])
    assert slabs[0].stars.position.sharding.spec == jax.P("data", None)
    assert slabs[0].stars.position.dtype == np.float32


def test_two_slabs_at_most_are_there():
    """The next one is made while one is used, and no more; in another thread."""
    made, used, most = [], [], []

    def items():
        for number in range(5):
            made.append(threading.current_thread().name)
            most.append(len(made) - len(used))
            yield number

    with read_ahead(items()) as coming:
        for number in coming:
            while len(made) < min(number + 2, 5):
                pass
            used.append(number)
    assert used == [0, 1, 2, 3, 4]
    assert max(most) == 2
    assert threading.current_thread().name not in made


def test_what_goes_wrong_while_reading_ends_the_run():
    def broken():
        yield part(0, 8)
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        pipeline_for().observe_slabs(broken())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slab")]


@pytest.mark.long
def test_four_times_the_stars_take_the_same_memory(tmp_path):
    """Runs of 0.55 and of 2.2 million stars in slabs of 65,536: held at once, those more would take 0.25 GB more."""
    peaks = []
    for n_stars in (550_000, 2_200_000):
        command = [sys.executable, Path(__file__).parents[1] / "peak_memory.py", tmp_path, str(n_stars), "65536"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr
        n_painted, kilobytes = done.stdout.split()
        assert int(n_painted) == n_stars
        peaks.append(int(kilobytes))
    print(f"peaks of {peaks} kB")
    assert peaks[1] - peaks[0] < 100_000
