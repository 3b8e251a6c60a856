"""Many galaxies: the lists, what is refused, what is skipped, recorded and shared, and what interruptions leave."""

import io
import json
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from installed_package import write_dist_info
from stopped_catalogue import (
    REPOSITORY,
    check_complete,
    check_interruptions,
    contents,
    n_done,
    records,
    start,
    summary,
    wait_for_entries,
    write_lists,
)

from rubix_like import ConfigError, load_config, run, run_catalogue
from rubix_like.cli.run_command import outcome_lines
from rubix_like.extend import Progress
from rubix_like.runs.batch.blocks import BlockWork, EntryEnding, blocks_of, galaxies_of, observe_block
from rubix_like.runs.batch.catalogue import observe_all
from rubix_like.runs.batch.entries import read_entries
from rubix_like.runs.batch.executors import Terms, device_groups_of
from rubix_like.runs.batch.records import Record, Records
from rubix_like.runtime.memory import MemoryNeed

WAVELENGTH = {"start": 4900, "stop": 5000, "step": 10}
BASE = {
    "galaxy": {"reader": "synthetic", "n_stars": 100},
    "observation": {"redshift": 0.05},
    "instrument": {"name": "muse", "fov": "1.2 arcsec", "wavelength": WAVELENGTH, "psf": None, "lsf": None},
    "engine": {"method": "direct", "precision": "float64"},
    "noise": {"signal_to_noise": 20},
}
GALAXIES = [{"name": f"g{seed}", "galaxy.seed": seed} for seed in (1, 2)]
VIEWS = [
    {"name": "face", "observation.inclination": "0 deg"},
    {"name": "edge", "observation.inclination": "90 deg", "observation.position_angle": "30 deg"},
]
EVERY = ["g1_face", "g1_edge", "g2_face", "g2_edge"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def refused(message, rows="name,galaxy.seed\na,1\n", config=BASE, **options):
    Path("list.csv").write_text(rows)
    with pytest.raises((ConfigError, OSError), match=message):
        run_catalogue(config, "list.csv", **options)
    assert not Path("cube").exists()


def statuses(outcome):
    return {row["name"]: row["status"] for row in outcome.rows}


def modified(place="cube"):
    return {path.name: path.stat().st_mtime_ns for path in Path(place).glob("*.fits")}


def test_one_entry_ends_while_the_next_begins(folder, monkeypatch):
    """At most one is being ended, in a thread with numbers of the same width; without memory for two none is, while
    another begins. Records come in order."""
    told, begun, go_on = [], [], threading.Event()
    (folder / "records").mkdir()
    work = BlockWork(Records(folder), {}, False, lambda entry, record: told.append((entry.name, record.status)), False)
    (one, two) = read_entries(BASE, [{"name": "one"}, {"name": "two"}], folder=folder)
    need, mesh = MemoryNeed(1, 1 << 60), jax.make_mesh((1,), ("data",))

    def ending(name, status):
        begun.append((name, jnp.zeros(1, float).dtype))
        assert go_on.wait(60)
        return Record(status, {}, "this")

    with ThreadPoolExecutor(1) as threads:
        ends = EntryEnding(work, threads)
        with jax.enable_x64(True):
            ends.hand(one, 0.0, partial(ending, "one", "done"))
        monkeypatch.setattr("rubix_like.runs.batch.blocks.check_memory", lambda need, mesh: None)
        ends.make_room(need, mesh)
        assert told == []
        go_on.set()
        ends.hand(two, 0.0, partial(ending, "two", "failed"))
        assert told == [("one", "done")]
        monkeypatch.undo()
        monkeypatch.setattr("rubix_like.runs.batch.blocks.check_memory", _no_memory)
        ends.make_room(need, mesh)
        assert told == [("one", "done"), ("two", "failed")]
        ends.settle()
    assert begun == [("one", np.float64), ("two", jnp.zeros(1, float).dtype)]
    assert work.records.read("two").seconds > 0


def _no_memory(need, mesh):
    raise ConfigError(f"memory: there is none for {need} on {mesh}")


def test_rows_and_views_are_settings(folder):
    rows = (
        '\ufeff# a list\nname,galaxy.seed, observation.redshift,observation.offset\na,1,,"[1 arcsec, 0]"\n\nb,2,0.1,\n'
    )
    Path("list.csv").write_text(rows, encoding="utf-8")
    Path("views.csv").write_text("observation.inclination\n0 deg\n60.5 deg\n")
    entries = read_entries(BASE, "list.csv", "views.csv", {"engine.chunk": "64"}, Path("out"))
    assert [(entry.name, str(entry.path)) for entry in entries] == [
        (name, f"out/{name}.fits")
        for name in ("a_inclination0deg", "a_inclination60.5deg", "b_inclination0deg", "b_inclination60.5deg")
    ]
    found = [(entry.config.galaxy.seed, entry.config.observation) for entry in entries]
    assert [(seed, view.redshift, view.offset, view.inclination) for seed, view in found] == [
        (1, 0.05, (1.0, 0.0), 0.0),
        (1, 0.05, (1.0, 0.0), 60.5),
        (2, 0.1, (0.0, 0.0), 0.0),
        (2, 0.1, (0.0, 0.0), 60.5),
    ]
    assert {entry.config.engine.chunk for entry in entries} == {64}
    assert entries[0].loading == entries[1].loading != entries[2].loading


def test_the_configuration_may_lack_what_rows_give(folder):
    lacking = {**BASE, "galaxy": None, "observation": {}}
    rows = [{"galaxy.reader": "synthetic", "galaxy.seed": 7, "observation.redshift": 0.1}]
    (entry,) = read_entries(lacking, rows)
    assert (entry.name, str(entry.path)) == (
        "readersynthetic_seed7_redshift0.1",
        "cube/readersynthetic_seed7_redshift0.1.fits",
    )


def test_views_of_one_galaxy_follow_each_other():
    rows = [{"name": name, "galaxy.seed": seed} for name, seed in (("a", 1), ("b", 2), ("c", 1))]
    assert [entry.name for entry in read_entries(BASE, rows)] == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "list.csv: expected at least one row"),
        ("name,galaxy.seed\n", "list.csv: expected at least one row"),
        ("name,galxy.seed\na,1\n", "line 1: expected columns that are settings.*'galxy.seed'; did you mean 'galaxy'"),
        ("name,galaxy.sed\na,1\n", r"line 2 \(a\): .*unknown key 'sed' of the reader 'synthetic'; did you mean 'seed'"),
        ("name,observation.incl\na,1\n", r"line 2 \(a\): .*unknown key 'observation.incl'"),
        ("name,galaxy.seed\na,x\n", r"line 2 \(a\): .*galaxy.seed: expected a whole number"),
        ("name,galaxy.seed\na,1\nb,\n\nc,[\n", r"line 5 \(c\): override 'galaxy.seed=\['.* expected YAML"),
        ("name,galaxy.seed\na,1\nA,2\n", r"line 3: expected a name of its own, got 'A' as in list.csv, line 2"),
        ("galaxy.seed\n1\n1\n", r"line 3: expected a name of its own, got 'seed1'"),
        ("name,galaxy.seed\na/b,1\n", r"line 2: expected a name of at most .* got 'a/b'"),
        ("name,galaxy.seed\na,1,2\n", "line 2: expected 2 values, one per column, got 3"),
        ("name,name\na,b\n", "line 1: the column 'name' is there twice"),
        ("name;galaxy.seed\na;1\n", "line 1: expected columns separated by commas"),
        ("name,galaxy.seed,dust.a_v\na,1,\n", "list.csv: expected a value in the column 'dust.a_v' in some row"),
        ('name,galaxy.seed\n"a,1\n', "list.csv: expected CSV"),
        ("name,output.path\na,b.fits\n", "line 1: 'output.path' cannot differ from row to row"),
        ("name,engine.precision\na,float64\n", "line 1: 'engine.precision' cannot differ"),
        ("name,ssp.library\na,popstarr\n", r"line 2 \(a\): .*did you mean 'popstar'"),
        ("name,galaxy\na,null\n", r"line 2 \(a\): galaxy: expected a section with a reader"),
    ],
)
def test_lists_that_are_refused(folder, rows, message):
    refused(message, rows)


def test_what_else_is_refused_before_anything_is_computed(folder):
    with pytest.raises(FileNotFoundError, match=r"no file 'absent.csv'"):
        run_catalogue(BASE, "absent.csv")
    Path("list.csv").write_bytes(b"name\n\xff\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        run_catalogue(BASE, "list.csv")
    with_file = {**BASE, "galaxy": None}
    refused(
        r"2 entries cannot be used:\n.*line 2 \(a\): galaxy.path: no file 'x.hdf5'\n.*line 3",
        "name,galaxy.path\na,x.hdf5\nb,y.hdf5\n",
        with_file,
    )
    rows = "name,galaxy.seed\n" + "".join(f"n{k},x\n" for k in range(12))
    refused(r"12 entries cannot be used(.|\n)*and 2 more", rows)
    refused("'galaxy.seed' is in both lists", views=[{"galaxy.seed": 1}])
    refused("views, row 1: expected columns", views=[{"inclination": 1}])
    truth = {**BASE, "noise": {"signal_to_noise": 5, "keep_truth": True}}
    refused(
        r"line 3 .*'a_truth.fits' would also be one of list.csv, line 2", "name,galaxy.seed\na,1\na_truth,2\n", truth
    )
    for part in ("0/2", "3/2", "1", "a/b"):
        refused("part: expected K/N", part=part)
    refused("the folder absent does not exist", output="absent/folder")
    Path("file").touch()
    refused("file: it is a file", output="file")
    for output in ("small.fits", ""):
        refused("output: expected a folder", output=output)
    Path("mine").mkdir()
    Path("mine/a.fits").write_text("another's")
    refused("a.fits: expected no file, or one that this catalogue has made", output="mine")
    assert Path("mine/a.fits").read_text() == "another's"


def test_a_catalogue_is_like_single_runs_and_done_once(folder):
    """Each cube as `run` makes it; done entries are skipped, removed and damaged ones made again."""
    outcome = run_catalogue(BASE, GALAXIES, VIEWS)
    assert statuses(outcome) == dict.fromkeys(EVERY, "done")
    assert (outcome.n_done, outcome.n_failed, outcome.n_skipped, outcome.lost) == (4, 0, 0, {})
    single = {**BASE, "galaxy": {**BASE["galaxy"], "seed": 2}}
    single["observation"] = {"redshift": 0.05, "inclination": "90 deg", "position_angle": "30 deg"}
    cube = run(single, "single.fits")
    assert contents("single.fits") == contents("cube/g2_edge.fits")

    rows = summary()
    assert [row["name"] for row in rows] == EVERY
    last = rows[-1]
    assert (last["galaxy"], last["view"], last["status"], last["file"]) == ("g2", "edge", "done", "g2_edge.fits")
    assert (int(last["stars"]), int(last["stars_outside"])) == (100, int(cube.counters.n_outside))
    good = np.asarray(cube.variance) > 0
    snr = np.median(np.asarray(cube.flux)[good] / np.sqrt(np.asarray(cube.variance)[good]))
    np.testing.assert_allclose(float(last["median_signal_to_noise"]), snr, rtol=1e-5)
    np.testing.assert_allclose(float(last["flux_erg_s_cm2"]), np.asarray(cube.flux).sum() * 10e-20, rtol=1e-5)

    before = modified()
    again = run_catalogue(BASE, GALAXIES, VIEWS)
    assert (again.n_done, again.n_skipped) == (0, 4)
    assert modified() == before
    Path("cube/g1_face.fits").unlink()
    with Path("cube/g2_face.fits").open("ab") as file:
        file.truncate(5000)
    mended = run_catalogue(BASE, GALAXIES, VIEWS)
    assert (mended.n_done, mended.n_skipped) == (2, 2)
    after = modified()
    assert [name for name in sorted(after) if after[name] != before[name]] == ["g1_face.fits", "g2_face.fits"]


def test_other_settings_are_refused_or_made_again(folder, caplog):
    run_catalogue(BASE, GALAXIES, part="1/2")
    other = {**BASE, "noise": {"signal_to_noise": 30}}
    before = modified()
    with pytest.raises(
        ConfigError, match=r"cube: 1 of 2 entries are done, but .*'g1': noise.signal_to_noise: 30.0 inst"
    ):
        run_catalogue(other, GALAXIES)
    assert modified() == before
    assert run_catalogue({**BASE, "devices": {"data": 8}}, GALAXIES, part="1/2").n_skipped == 1
    redone = run_catalogue(other, GALAXIES, redo=True)
    assert "redo=True is called overwrite=True now" in caplog.text
    assert (redone.n_done, redone.n_skipped) == (2, 0)
    assert run_catalogue(other, GALAXIES, overwrite=True).n_skipped == 2
    record = json.loads(Path("cube/records/g1.json").read_text())
    record["made_from"]["numbers"] = -1
    Path("cube/records/g1.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"'g1': .* numbers .*is 0 instead of -1\); give overwrite=True .* another f"):
        run_catalogue(other, GALAXIES)
    made = record["made_from"]
    del made["numbers"], made["settings"]["ssp.library"]
    made["version"] = "0.1.0"
    assert made["settings"].pop("engine.kernel") == "auto"
    Path("cube/records/g1.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"'g1': engine.kernel: auto instead of scatter; give"):
        run_catalogue(other, GALAXIES)
    by_scatter = {**other, "engine": {**other.get("engine", {}), "kernel": "scatter"}}
    assert run_catalogue(by_scatter, GALAXIES, part="1/2").n_skipped == 1
    Path("cube/records/g1.json").write_text("{")
    with pytest.raises(ConfigError, match=r"g1.json: expected a record .* remove it"):
        run_catalogue(other, GALAXIES)


def write_cutout(path, n_stars, seed=0, n_gas=0):
    """A compact rotating disc in the layout of a TNG cut-out, with gas in the places of its first stars; of nan where
    `seed` is negative."""
    rng = np.random.default_rng(abs(seed))
    offset = rng.normal(size=(n_stars, 3)) * [0.3, 0.3, 0.03]
    columns = {
        "Coordinates": 17000.0 + offset,
        "Velocities": np.cross([0, 0, 1], offset) * 100 * (np.nan if seed < 0 else 1),
        "Masses": rng.uniform(1e-5, 2e-5, n_stars),
        "GFM_InitialMass": rng.uniform(2e-5, 4e-5, n_stars),
        "GFM_Metallicity": rng.uniform(0.001, 0.03, n_stars),
        "GFM_StellarFormationTime": rng.uniform(0.2, 0.7, n_stars),
    }
    header = {"BoxSize": 35000.0, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 0.25, "Time": 0.8}
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        for name, values in columns.items():
            file[f"PartType4/{name}"] = values
        for name in ("Coordinates", "Velocities", "Masses", "GFM_Metallicity") if n_gas else ():
            file[f"PartType0/{name}"] = columns[name][:n_gas]
        if n_gas:
            file["PartType0/Density"] = np.full(n_gas, 1e-3)


def test_failures_are_recorded_and_the_rest_goes_on(folder):
    for name, seed in (("good", 1), ("bad", -1), ("fine", 2)):
        write_cutout(f"{name}.hdf5", 100, seed)
    rows = [{"galaxy.path": f"{name}.hdf5"} for name in ("bad", "good", "fine")]
    config = {**BASE, "galaxy": None}
    log = io.StringIO()
    outcome = observe_all(read_entries(config, rows, VIEWS[:1]), Progress(log))
    assert statuses(outcome) == {"bad_face": "failed", "good_face": "done", "fine_face": "done"}
    assert outcome.rows[0]["error"].startswith("stars.velocity") or "Velocities" in outcome.rows[0]["error"]
    assert sorted(path.name for path in Path("cube").glob("*.fits")) == ["fine_face.fits", "good_face.fits"]
    lines = log.getvalue().splitlines()
    assert lines[0] == "observing 3 entries of 3 galaxies ..."
    assert [line.split(":")[0] for line in lines[1:4]] == ["[1/3] bad_face", "[2/3] good_face", "[3/3] fine_face"]
    assert any(line.startswith("Failed: bad_face: ") for line in outcome_lines(outcome))
    write_cutout("bad.hdf5", 100, 3)
    again = run_catalogue(config, rows, VIEWS[:1])
    assert (again.n_done, again.n_skipped, again.n_failed) == (1, 2, 0)
    write_cutout("good.hdf5", 101, 1)
    with pytest.raises(ConfigError, match=r"'good_face': the file good.hdf5 is another"):
        run_catalogue(config, rows, VIEWS[:1])


def test_a_view_that_fails_leaves_nothing_to_the_next(folder):
    """The second view is counted (some stars are older than its Universe), but cannot be planned."""
    far = {"observation.redshift": 1.0}
    views = [{"name": "near"}, {"name": "bad", **far, "noise.wavelength": 2.0}, {"name": "far", **far}]
    outcome = run_catalogue(BASE, GALAXIES[:1], views)
    assert list(statuses(outcome).values()) == ["done", "failed", "done"]
    assert "noise.wavelength: expected a window" in outcome.rows[1]["error"]
    run({**BASE, "galaxy": {**BASE["galaxy"], "seed": 1}, "observation": {"redshift": 1.0}}, "single.fits")
    assert "older" in outcome.rows[2]["notes"]
    assert contents("cube/g1_far.fits") == contents("single.fits")


def test_one_compilation_for_galaxies_of_about_the_same_size(folder, caplog):
    """Galaxies of one size class, each in two views, in two catalogues."""
    for number in range(4):
        write_cutout(f"g{number}.hdf5", 97 + number, number)
    config = {**BASE, "galaxy": None, "engine": {**BASE["engine"], "chunk": 16}}

    def compilations(*numbers):
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
            run_catalogue(config, [{"galaxy.path": f"g{number}.hdf5"} for number in numbers], VIEWS)
        return sum("Finished XLA compilation of jit(observe)" in record.getMessage() for record in caplog.records)

    assert [compilations(0, 1), compilations(0, 1, 2, 3)] == [1, 0]
    assert [row["stars"] for row in summary()] == ["97", "97", "98", "98", "99", "99", "100", "100"]


@pytest.mark.long
def test_dust_of_galaxies_with_and_without_gas(folder, caplog):
    """Gas of one size class shares a program, galaxies without gas have one of their own; each is like a single run."""
    for number, n_gas in enumerate((60, 0, 58, 0)):
        write_cutout(f"g{number}.hdf5", 97 + number, number, n_gas)
    dust = {"kind": "particles", "cells": 4, "cold": None}
    config = {**BASE, "galaxy": None, "dust": dust, "noise": None, "engine": {**BASE["engine"], "chunk": 16}}

    def compilations():
        found = [record.getMessage() for record in caplog.records]
        return sum("Finished XLA compilation of jit(observe)" in words for words in found)

    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        outcome = run_catalogue(config, [{"galaxy.path": f"g{number}.hdf5"} for number in range(4)])
        assert (outcome.n_done, compilations()) == (4, 2)
        for number in range(4):
            run({**config, "galaxy": {"path": f"g{number}.hdf5"}}, "single.fits")
            assert contents("single.fits") == contents(f"cube/g{number}.fits")
        assert compilations() == 2
        run({**config, "dust": None, "galaxy": {"path": "g1.hdf5"}}, "bare.fits")
        np.testing.assert_allclose(fits.getdata("bare.fits", "DATA"), fits.getdata("cube/g1.fits", "DATA"), rtol=1e-12)


@pytest.mark.slow
def test_groups_of_devices_take_galaxies_of_their_own(folder):
    run_catalogue(BASE, GALAXIES, VIEWS[:1], "whole")
    split = {**BASE, "devices": {"data": 4}}
    outcome = run_catalogue(split, GALAXIES, VIEWS[:1], "split")
    assert outcome.n_done == 2
    for name in ("g1_face", "g2_face"):
        one, other = (fits.getdata(f"{place}/{name}.fits", "DATA") for place in ("whole", "split"))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * np.abs(one).max())


def test_parts_at_the_same_time_leave_one_complete_summary(folder):
    outcomes = []
    threads = [
        threading.Thread(
            target=lambda part: outcomes.append(run_catalogue(BASE, GALAXIES, VIEWS, part=part)), args=[part]
        )
        for part in ("1/2", "2/2")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.n_done for outcome in outcomes] == [2, 2]
    assert [(row["name"], row["status"]) for row in summary()] == [(name, "done") for name in EVERY]


def test_an_executor_makes_the_same_in_blocks(folder):
    """Its rows and what holds for all of them are pickled; a block that is called again does nothing."""
    run_catalogue(BASE, GALAXIES, VIEWS, "here")
    blocks = []

    class Pickling(ThreadPoolExecutor):
        def submit(self, function, *arguments):
            blocks.append(pickle.dumps((function, arguments)))
            work, parts = pickle.loads(blocks[-1])
            return super().submit(work, *parts)

    with Pickling(2) as executor:
        outcome = run_catalogue(BASE, GALAXIES, VIEWS, "cube", executor=executor, block=1)
        assert executor.submit(len, "it was left open").result() == 16
    assert (outcome.n_done, outcome.n_failed, outcome.lost) == (4, 0, {})
    assert len(blocks) == 5
    assert [row["name"] for row in summary() if row["status"] == "done"] == EVERY
    assert [name for name in EVERY if contents(f"here/{name}.fits") != contents(f"cube/{name}.fits")] == []
    before = modified()
    function, arguments = pickle.loads(blocks[0])
    assert [record.status for record in function(*arguments).values()] == ["done"]
    assert modified() == before


def test_blocks_hold_what_compiles_alike(folder):
    narrow = '{name: muse, fov: "0.6 arcsec", psf: null, lsf: null}'
    rows = [{"galaxy.seed": k, **({"instrument": narrow} if k % 2 else {})} for k in range(6)]
    galaxies = galaxies_of(read_entries(BASE, rows, VIEWS))
    galaxies.sort(key=lambda galaxy: galaxy[0].compiling)

    def sizes(most):
        blocks = blocks_of(galaxies, most)
        assert all(len({entry.compiling for entry in block}) == 1 for block in blocks)
        assert [entry for block in blocks for entry in block] == [entry for galaxy in galaxies for entry in galaxy]
        return [len(block) for block in blocks]

    assert [sizes(most) for most in (None, 1, 3, 4, 100)] == [[2] * 6, [1] * 12, [2] * 6, [4, 2] * 2, [6] * 2]


def test_what_a_broken_worker_loses_is_named_and_made_by_the_next_run(folder, capsys, monkeypatch):
    """The second of two blocks breaks off after its first entry."""

    class Breaking(ThreadPoolExecutor):
        def submit(self, function, config, rows, output, terms):
            def work():
                if rows[0].name.startswith("g1"):
                    return function(config, rows, output, terms)
                function(config, rows[:1], output, terms)
                raise BrokenExecutor("a worker was killed")

            return super().submit(work)

    with Breaking(1) as executor:
        outcome = run_catalogue(BASE, GALAXIES, VIEWS, executor=executor)
    assert (outcome.n_done, outcome.lost) == (3, {"g2_edge": "BrokenExecutor: a worker was killed"})
    assert statuses(outcome) == {**dict.fromkeys(EVERY, "done"), "g2_edge": "waiting"}
    assert outcome_lines(outcome)[0] == "Catalogue in cube: 3 done, 1 lost"
    assert "Lost: g2_edge: BrokenExecutor: a worker was killed" in outcome_lines(outcome)
    again = run_catalogue(BASE, GALAXIES, VIEWS)
    assert (again.n_done, again.n_skipped, again.lost) == (1, 3, {})


def test_a_worker_that_went_on_alone_does_not_write_over_the_next_one(folder):
    records = Records(Path("cube"))
    records.create()
    records.write("g1", Record("started", {}, "the next worker"))
    assert records.is_begun_by("g1", "the next worker")
    assert not records.is_begun_by("g1", "the one before")
    assert records.is_begun_by("g2", "the first one")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": "proceses"}, "unknown executor 'proceses'; did you mean 'processes'"),
        ({"executor": "processes", "block": 0}, "block: expected a number of entries from 1 on, .* got 0"),
        ({"block": 2}, "block: .* got 2 without one"),
        ({"executor": "processes:0"}, "executor: expected a number of processes from 1 on, got 'processes:0'"),
        ({"executor": "processes:x"}, "got 'processes:x'"),
        ({"executor": "mpi:4"}, "executor: expected 'mpi' alone, got 'mpi:4'"),
        ({"executor": "parsl"}, "expected 'parsl:FILE.py' with a file that there is, got 'parsl:'"),
        ({"executor": "parsl:absent.py"}, "got 'parsl:absent.py'"),
    ],
)
def test_executors_that_are_refused(folder, options, message):
    with pytest.raises(ConfigError, match=message):
        run_catalogue(BASE, GALAXIES, **options)
    assert modified() == {}


def test_groups_of_devices():
    def groups_of(**devices):
        return device_groups_of(load_config(BASE | {"devices": devices}).devices, 8)

    groups = [groups_of(**own) for own in ({}, {"data": 1}, {"data": 3}, {"data": 2, "wave": 2})]
    assert groups == [(1, 8), (8, 1), (2, 3), (2, 4)]
    with pytest.raises(ConfigError, match="devices: expected at most 8, as this computer has, got 16"):
        groups_of(data=4, wave=4)


def test_an_executor_from_outside(folder, monkeypatch):
    """Found by its entry point: a class of one method, which gets what is after the colon, and the devices."""
    write_dist_info(folder, "my-threads", "[rubix_like.executors]\nthreads = my_threads:Threads\n")
    (folder / "my_threads.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "class Threads(ThreadPoolExecutor):\n"
        "    def __init__(self, where, devices):\n"
        "        super().__init__(int(where or 1), devices.data)\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "my_threads", raising=False)
    assert run_catalogue(BASE, GALAXIES, executor="threads:2").n_done == 2


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Of compiled programs, for the commands of several tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.long
def test_processes_end_with_their_worker_or_their_front(folder, cache, monkeypatch):
    """A killed worker is reported with what it lost, code 1; the rest is kept. Ctrl-C ends front and workers, code 130,
    with nothing half-written. The next run goes on, here without an executor, to the same bytes."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))
    write_lists(4)
    whole, process = start("--output", "whole"), start("--executor", "processes", "--block", "1")
    wait_for_entries(process, 1)
    os.kill(int(re.search(r"process (\d+)", records()[0]["worker"])[1]), signal.SIGKILL)
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 1, log
    assert 1 <= log.count("lost: BrokenProcessPool: ") == 12 - n_done()
    assert len(summary("stopped")) == 12

    before = n_done()
    process = start("--executor", "processes", "--block", "1")
    wait_for_entries(process, 1)
    os.killpg(process.pid, signal.SIGINT)
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 130, log
    assert log.splitlines()[-1] == "rubix-like: interrupted; nothing was left half-written"
    assert "Traceback" not in log
    assert before < n_done() < 12
    assert list(Path("stopped").rglob(".*")) == []
    check_complete(start(), whole, 4)


def test_what_dead_processes_left_is_removed(folder):
    """Half-written files of entries go at the start; an interrupted galaxy comes last; others' files stay."""
    run_catalogue(BASE, GALAXIES[:1])
    record = json.loads(Path("cube/records/g1.json").read_text())
    Path("cube/records/g1.json").write_text(json.dumps({**record, "status": "started", "files": {}}))
    Path("cube/g1.fits").unlink()
    stale = [
        Path("cube/.rubix-like-node1-0123456789ab-g1.fits"),
        Path("cube/.rubix-like-node2-0123456789ab-g1.fits"),
        Path("cube/records/.rubix-like-node1-0123456789ab-g1.json"),
        Path("cube/.rubix-like-node1-0123456789ab-summary.csv"),
    ]
    kept = [Path("cube/.rubix-like-node1-0123456789ab-other.fits"), Path("cube/.g1.fits"), Path("cube/.123-g1.fits")]
    for path in (*stale, *kept):
        path.touch()
    log = io.StringIO()
    observe_all(read_entries(BASE, GALAXIES), Progress(log))
    assert [line.split()[1] for line in log.getvalue().splitlines() if line.startswith("[")] == ["g2:", "g1:"]
    assert [path.exists() for path in stale] == [False] * 4
    assert [path.exists() for path in kept] == [True] * 3


def test_a_full_disk_ends_the_catalogue(folder, monkeypatch):
    """It is no fault of a galaxy: nothing more is tried."""
    monkeypatch.setattr("rubix_like.runtime.files.outputs.shutil.disk_usage", lambda place: DiskFull())
    with pytest.raises(OSError, match=r"cannot write .*g1\.fits: about"):
        run_catalogue(BASE, GALAXIES)
    assert modified() == {}


class DiskFull:
    free = 10


def test_the_command(folder, capsys, jax_settings, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(folder / "cache"))
    Path("run.yaml").write_text(json.dumps({**BASE, "galaxy": None}))
    write_cutout("good.hdf5", 100, 1)
    write_cutout("bad.hdf5", 100, -1)
    Path("list.csv").write_text("galaxy.path\ngood.hdf5\nbad.hdf5\n")
    words = ["run", "run.yaml", "--catalogue", "list.csv", "--output", "out", "--set", "noise.seed=1"]
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert out.startswith("Catalogue in out: 1 done, 1 failed\nSummary: out/summary.csv\nFailed: bad: ")
    assert "[1/2] good: done in" in err
    assert main([*words, "--part", "1/2"]) == 0
    assert capsys.readouterr().out.startswith("Catalogue in out: 0 done, 1 done before\n")
    assert main(["run", "run.yaml", "--part", "1/2"]) == 2
    assert "part: expected --catalogue" in capsys.readouterr().err
    assert main([*words, "--part", "x"]) == 2
    assert "expected K/N" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "goes_on"), [(0, True), (1, True), (2, False), (70, False), (137, False)])
def test_a_share_of_the_snakefile_ends_well_where_galaxies_failed(folder, code, goes_on):
    """Snakemake starts no other job once one has failed: a galaxy that fails (1) must not, what cannot start must."""
    text = (REPOSITORY / "docs" / "examples" / "Snakefile").read_text()
    words = re.findall(r'^        f?"(.*)"$', text[text.index("    shell:") :], re.MULTILINE)
    shell = re.sub(r"\{+[\w.]+\}+", "7", "".join(words))
    assert shell.startswith("rubix-like run 7 --catalogue 7 --views 7 --output cubes --part 7/7")
    (folder / "rubix-like").write_text(f"#!/bin/sh\nexit {code}\n")
    (folder / "rubix-like").chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", shell], env={**os.environ, "PATH": path}, check=False)
    assert (ended.returncode == 0) is goes_on


MAPS = Path("/proc/self/maps")
ONLY_LINUX = pytest.mark.skipif(not MAPS.exists(), reason="other systems have no limit on memory maps")


@ONLY_LINUX
@pytest.mark.parametrize(("door", "n_traced"), [("python", 1), ("worker", 2), ("command", 2)])
def test_commands_and_workers_clear_the_caches_of_jax(door, n_traced, folder, jax_settings, monkeypatch):
    """Where programs take too many memory maps; a call from Python leaves the caller's programs alone."""
    traced = []

    @jax.jit
    def doubled(x):
        traced.append(x.shape)
        return 2 * x

    doubled(jnp.ones(3))
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(folder / "cache"))
    (folder / "most").write_text("100\n")
    monkeypatch.setattr("rubix_like.runtime.compiled_programs._MOST_MAPS", folder / "most")
    (entry,) = read_entries(BASE, [{"name": "a"}], folder=folder / "out")
    if door == "python":
        run_catalogue(BASE, [{"name": "a"}], output="out")
    elif door == "worker":
        Records(folder / "out").create()
        observe_block(entry.base, [entry.row], folder / "out", Terms(folder, {}, ("another computer", 1)))
    else:
        Path("run.yaml").write_text(json.dumps(BASE))
        Path("list.csv").write_text("name\na\n")
        assert main(["run", "run.yaml", "--catalogue", "list.csv", "--output", "out"]) == 0
    assert entry.path.exists()
    doubled(jnp.ones(3))
    assert len(traced) == n_traced


@ONLY_LINUX
@pytest.mark.long
def test_300_shapes_in_one_process(folder, monkeypatch):
    """Each compiles a small program of its own, of some 180 memory maps: together three times the limit that is set."""
    (folder / "most").write_text("20000\n")
    monkeypatch.setattr("rubix_like.runtime.compiled_programs._MOST_MAPS", folder / "most")
    sides = [(0.2 * y, 0.2 * x) for y in range(5, 20) for x in range(5, 25)]
    rows = [{"name": f"c{number}", "instrument.fov": list(side)} for number, side in enumerate(sides)]
    for part in (rows[:100], rows[100:200], rows[200:]):
        assert run_catalogue(BASE, part).n_done == 100
        assert len(MAPS.read_text().splitlines()) < 11_000


@pytest.mark.parametrize(
    ("executor", "n_kill", "n_galaxy"),
    [
        pytest.param((), 2, 6, marks=pytest.mark.slow(20)),
        pytest.param((), 10, 20, marks=pytest.mark.long),
        pytest.param(("--executor", "processes:2"), 10, 20, marks=pytest.mark.long),
    ],
)
def test_interruptions_change_nothing(folder, cache, monkeypatch, executor, n_kill, n_galaxy):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))
    kills = check_interruptions(n_kill, n_galaxy, *executor)
    assert [code for code, _, _ in kills] == [143, -signal.SIGKILL] * (n_kill // 2)
    if n_kill > 2:  # one may be too late by the blink of an eye
        assert "writing" in {where for _, where, _ in kills}
