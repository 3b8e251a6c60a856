"""Several processes make one cube: the same as one makes; where one of them goes, all end.

Those that start processes run with --slow.
"""

import ast
import functools
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import field_plug_ins
import h5py
import jax
import numpy as np
import process_worker
import pytest
from astropy.io import fits
from command_line import main, make_parser
from quick_compiler import quick_environment

import rubix_like as rl
from rubix_like.runtime.processes.launch import (
    ProcessPlace,
    find_launch,
    from_open_mpi_5,
    nothing_found,
    own_address,
    own_devices,
    read_address,
    read_launch,
)

COUNT = 230
REPOSITORY = Path(__file__).resolve().parents[2]
DIM = """fields: [surface_density]
scene: [orient, point, {dim: {by: surface_density, strength: 1.0e-6}}]
paint: [stars]
cube: [psf, noise]
"""
LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_", "JAX_COORDINATOR", "CLOUD_TPU", "TPU_")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def write_snapshot(path, count):
    """A disc of stars, and half as many cells of gas in it that turn the other way."""
    rng = np.random.default_rng(5)
    position = rng.normal(size=(count, 3)) * [2.0, 1.6, 0.3]
    velocity = 90 * np.stack([-position[:, 1], position[:, 0], 0 * position[:, 0]], axis=1)
    header = {"BoxSize": 1e5, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 0.0, "Time": 1.0}
    mass = rng.uniform(1e-5, 2e-5, count)
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        table = {
            "Coordinates": 5e4 + position,
            "Velocities": velocity + 30 * rng.normal(size=(count, 3)),
            "Masses": mass,
            "GFM_InitialMass": 2 * mass,
            "GFM_Metallicity": rng.uniform(0.005, 0.04, count),
            "GFM_StellarFormationTime": rng.uniform(0.3, 0.95, count),
        }
        for name, values in table.items():
            file.create_dataset(f"PartType4/{name}", data=values)
            if name in ("Coordinates", "Velocities", "Masses", "GFM_Metallicity"):
                file.create_dataset(f"PartType0/{name}", data=-values[::2] if name == "Velocities" else values[::2])
    return path


def environment_of(**others):
    """That of a process on CPUs which no launcher has started."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return own | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(REPOSITORY)} | quick_environment() | others


def worker(scenario, folder, number, words=(), **others):
    """One process of a scenario, whose messages go to a file."""
    script = str(REPOSITORY / "tests" / "process_worker.py")
    with (folder / f"said_{number}").open("w") as said:
        command_line = [sys.executable, script, scenario, str(folder), *map(str, words)]
        return subprocess.Popen(command_line, env=environment_of(**others), stdout=said, stderr=said)


def start(scenario, folder, size, devices=1):
    """The processes of a scenario."""
    port = free_port()
    numbers = range(size)
    return [worker(scenario, folder, n, (port, size, n), JAX_NUM_CPU_DEVICES=str(devices)) for n in numbers]


def messages(folder, number):
    """What a process said, without what the libraries did."""
    lines = (folder / f"said_{number}").read_text().splitlines()
    return [line for line in lines if not line.startswith("[Gloo]")]


def finish(processes, folder):
    codes = [process.wait(timeout=300) for process in processes]
    assert codes == [0] * len(codes), [messages(folder, number) for number in range(len(codes))]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two processes with two devices each; what each of them saved. They have a plug-in, and so has this one."""
    folder = tmp_path_factory.mktemp("together")
    write_snapshot(folder / "snapshot.hdf5", COUNT)
    field_plug_ins.announce(folder)
    (folder / "dim.yaml").write_text(DIM)
    finish(start("together", folder, 2, devices=2), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder, [dict(np.load(folder / f"together_{number}.npz")) for number in range(2)]


@functools.cache
def alone_in(folder, precision):
    """What one process makes: the cube and its file."""
    path = folder / f"alone_{precision}.fits"
    return rl.run(process_worker.config_of(folder, precision, devices={"data": 1}), path), path


def facts(saved):
    return ast.literal_eval(str(saved["facts"]))


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 5e-6), ("float64", 1e-12)])
def test_two_processes_make_the_cube_of_one(together, precision, tolerance):
    folder, saved = together
    alone, path = alone_in(folder, precision)
    flux = np.asarray(alone.flux)
    for own in saved:
        assert np.abs(own[precision] - flux).max() < tolerance * np.abs(flux).max()
    with fits.open(folder / f"{precision}.fits") as ours, fits.open(path) as theirs:
        assert fits.HeaderDiff(ours[0].header, theirs[0].header, ignore_keywords=["DATE", "CHECKSUM"]).identical
        written = ours["DATA"].data
        assert np.abs(written - theirs["DATA"].data).max() < max(tolerance, 1e-6) * np.abs(written).max()


@pytest.mark.slow
def test_parts_of_a_cube_are_written_by_the_processes_that_have_them(together):
    folder, saved = together
    ranges = [bins for own in saved for bins in facts(own)["bins"]]
    assert len(facts(saved[0])["bins"]) == 2
    assert (folder / "parts.png").read_bytes().startswith(b"\x89PNG")
    assert list(folder.glob(".*")) == []
    with fits.open(folder / "parts.fits") as parts, fits.open(folder / "float32.fits") as whole:
        n_wave = len(whole["DATA"].data)
        assert sorted(bins for own in ranges for bins in range(*own)) == list(range(n_wave))
        assert fits.HeaderDiff(parts[0].header, whole[0].header, ignore_keywords=["DATE", "CHECKSUM"]).identical
        assert_same_images(parts, whole)


def assert_same_images(found, expected):
    assert [hdu.name for hdu in found] == [hdu.name for hdu in expected]
    for name in (name for name in ("DATA", "STAT", "DQ") if name in expected):
        ours, theirs = found[name].data, expected[name].data
        assert np.abs(ours - theirs).max() < 5e-6 * np.abs(theirs).max() + 1e-30


@pytest.mark.slow
def test_each_process_paints_its_share_slab_by_slab(together):
    """Four slabs of 28 or 29 stars in each of two processes; the cube lies in parts on their devices."""
    folder, _ = together
    with fits.open(folder / "parts_of_slabs.fits") as slabs, fits.open(folder / "float32.fits") as whole:
        assert fits.HeaderDiff(slabs[0].header, whole[0].header, ignore_keywords=["DATE", "CHECKSUM"]).identical
        assert_same_images(slabs, whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float64", "fields_of_slabs"])
def test_fields_are_of_the_particles_of_all_processes(together, name):
    """A stage dims stars by the mass in their spaxel; the map of it, and those of gas, are written by process 0."""
    folder, _ = together
    alone, path = alone_in(folder, "float64")
    with fits.open(folder / f"{name}.fits") as found, fits.open(path) as expected:
        assert_same_images(found, expected)
    maps = rl.Maps.read(folder / f"{name}_maps.fits")
    for which in ("before", "after"):
        found, expected = (getattr(own, which).fields["surface_density"] for own in (maps, alone.maps))
        assert np.max(expected) > 1e6
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.max(expected))
        for image in ("gas_mass", "v_gas", "metallicity_gas"):
            found, expected = (getattr(getattr(own, which), image) for own in (maps, alone.maps))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.nanmax(expected))


@pytest.mark.slow
@pytest.mark.parametrize("slab", ["all", process_worker.SLAB])
def test_two_processes_paint_observations_together(together, slab):
    """All particles at once, or each process its slabs: the cubes of each observation are those of one process."""
    folder, _ = together
    rl.run(process_worker.config_of_pair(folder, devices={"data": 1}), folder / "pair_alone.fits", overwrite=True)
    for name in ("blue", "red"):
        with (
            fits.open(folder / f"pair_{slab}_{name}.fits") as found,
            fits.open(folder / f"pair_alone_{name}.fits") as one,
        ):
            assert_same_images(found, one)
    words = "for 2 observations" if slab == "all" else "for 2 observations in 4 slabs each"
    assert any(words in line for line in messages(folder, 0))


@pytest.mark.slow
def test_the_gradient_is_that_of_one_process(together):
    folder, saved = together
    alone = rl.load_config(process_worker.config(folder, "float64", noise=None, devices={"data": 1}))
    galaxy = rl.load_galaxy(alone)
    expected = process_worker.slope(rl.Pipeline.from_config(alone, galaxy), galaxy).stars
    for name in ("position", "velocity", "initial_mass"):
        found = np.concatenate([own[f"slope {name}"] for own in saved])
        reference = np.asarray(getattr(expected, name))
        assert np.abs(reference).max() > 0
        assert np.abs(found - reference).max() < 1e-10 * np.abs(reference).max(), name


@pytest.mark.slow
def test_each_process_reads_its_own_rows_alone(together):
    _, saved = together
    rows = [{name: set(own[name].tolist()) for name in own if name.startswith("rows")} for own in saved]
    assert len(rows[0]) == 6
    for name in rows[0]:
        assert rows[0][name] == set(range(COUNT // 2)), name
        assert rows[1][name] == set(range(COUNT // 2, COUNT)), name


@pytest.mark.slow
def test_values_come_in_order_and_errors_to_all(together):
    own, other = (facts(saved) for saved in together[1])
    assert own["devices"] == other["devices"] == 4
    assert own["order"] == other["order"] == [0.0, 1 / 3]
    assert other["error"] == "IndexError: list index out of range"
    assert own["error"] == "ValueError: process 1: list index out of range"


@pytest.mark.slow
def test_a_full_disk_in_process_0_ends_the_run_everywhere(together):
    folder, saved = together
    own, other = (facts(one)["full disk"] for one in saved)
    assert own.startswith(f"OSError: cannot write {folder / 'full.fits'}: the disk or the quota is full")
    assert other.startswith(f"ValueError: process 0: cannot write {folder / 'full.fits'}")
    assert [path.name for path in folder.iterdir() if "full" in path.name] == []


@pytest.mark.long
def test_more_processes_than_stars(tmp_path):
    write_snapshot(tmp_path / "snapshot.hdf5", 2)
    finish(start("few", tmp_path, 3), tmp_path)
    saved = [dict(np.load(tmp_path / f"few_{number}.npz")) for number in range(3)]
    assert [int(own["share"][1] - own["share"][0]) for own in saved] == [0, 1, 1]
    alone = np.asarray(rl.run(process_worker.config_of_few(tmp_path), tmp_path / "alone.fits").flux)
    for own, name in itertools.product(saved, ("flux", "of slabs")):
        assert np.abs(own[name] - alone).max() < 1e-12 * np.abs(alone).max(), name


def until(condition, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "victim", "blow"),
    [
        ("writing", 1, signal.SIGKILL),
        pytest.param("endless", 0, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("endless", 1, signal.SIGSTOP, marks=pytest.mark.long),
    ],
)
def test_where_one_goes_all_end(tmp_path, scenario, victim, blow):
    processes = start(scenario, tmp_path, 2)
    try:
        until((tmp_path / f"ready_{1 - victim}").exists)
        struck = time.monotonic()
        processes[victim].send_signal(blow)
        assert processes[1 - victim].wait(timeout=60) != 0
        assert time.monotonic() - struck < process_worker.PEER_TIMEOUT + 20
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = "\n".join(messages(tmp_path, 1 - victim))
    assert "Terminating process because the JAX distributed service detected fatal errors" in said
    assert not (tmp_path / "half.fits").exists()


@pytest.mark.slow
def test_a_batch_system_can_end_a_process(tmp_path):
    """JAX keeps SIGTERM for itself when it connects processes; here it ends them as ever, also in mid-file."""
    (process,) = start("writing", tmp_path, 1)
    try:
        until((tmp_path / "ready_0").exists)
        process.terminate()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM, messages(tmp_path, 0)
    finally:
        process.kill()
        process.wait()
    assert [path.name for path in tmp_path.iterdir() if "half" in path.name] == []


def command(*words, **others):
    """A `rubix-like run quickstart` that has begun."""
    command_line = [sys.executable, "-m", "rubix_like.cli", "run", "quickstart", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command_line, env=environment_of(**others), stdout=pipe, stderr=pipe, text=True)


def ended(process):
    """Exit code of a command and the lines that it said, but for Gloo's and its steps; nothing was printed."""
    printed, said = process.communicate(timeout=150)
    assert printed == ""
    return process.returncode, [x for x in said.splitlines() if not (x.startswith("[Gloo]") or x.endswith(" ..."))]


def placed(port, number, size=2):
    return ("--coordinator", f"127.0.0.1:{port}", "--num-processes", str(size), "--process-id", str(number))


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_coordinator_that_is_not_there_and_a_process_that_never_comes(number):
    code, said = ended(command(*placed(free_port(), number), "--connect-timeout", "1"))
    assert code != 0
    assert "DEADLINE_EXCEEDED" in "\n".join(said)


NOWHERE = ("--set", "galaxy={reader: illustris, path: /nowhere.hdf5}")
SIZES = "num_processes: expected the same in every process, got 3 here and 2 in process 0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "words_of_second", "size_of_second", "said_by_first", "said_by_second"),
    [
        ((), ("--set", "galaxy.seed=x"), 2, "process 1: ", "galaxy.seed: expected a whole number"),
        pytest.param((), ("--set", "galaxy.seed=9"), 2, *2 * ("got another one in process 1",), marks=pytest.mark.long),
        pytest.param((), (), 3, f"process 1: {SIZES}", SIZES, marks=pytest.mark.long),
        pytest.param(NOWHERE, NOWHERE, 2, "/nowhere.hdf5", "/nowhere.hdf5", marks=pytest.mark.long),
    ],
)
def test_a_refusal_ends_all_with_one_sentence(words, words_of_second, size_of_second, said_by_first, said_by_second):
    port = free_port()
    pair = [command(*placed(port, 0), *words), command(*placed(port, 1, size_of_second), *words_of_second)]
    (first, lines), (second, lines_of_second) = map(ended, pair)
    assert (first, second) == (2, 2)
    assert len(lines) == len(lines_of_second) == 1, (lines, lines_of_second)
    assert said_by_first in lines[0]
    assert said_by_second in lines_of_second[0]


@pytest.mark.slow
def test_without_a_launcher_it_is_said_how():
    code, said = ended(command("--distributed", SLURM_JOB_ID="1"))
    assert code == 2
    assert len(said) == 1
    assert nothing_found({"SLURM_JOB_ID": "1"}).partition("; without a launcher")[0] in said[0]
    assert "--coordinator HOST:PORT, --num-processes N, --process-id I" in said[0]
    assert "start the command with srun" in said[0]
    assert "start the command" not in nothing_found({})


@pytest.mark.slow
def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = ended(command(*placed(port, 0)))
    assert code == 2
    assert f"process 0 cannot listen on port {port} of 127.0.0.1" in said[-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--coordinator", "a:1"], "--num-processes, --process-id: expected all three"),
        (["--coordinator", "a:1", "--num-processes", "2", "--process-id", "2"], "--process-id: expected 0 to 1"),
        (["--coordinator", "a:1", "--num-processes", "0", "--process-id", "0"], "--num-processes: expected 1 to 65536"),
        (["--coordinator", "a", "--num-processes", "2", "--process-id", "0"], "--coordinator: expected HOST:PORT"),
        (["--coordinator", "::1:8", "--num-processes", "2", "--process-id", "0"], "--coordinator: expected HOST:PORT"),
        (["--distributed", "--peer-timeout", "0"], "--peer-timeout: expected 1 to 9999999 s, got 0"),
        (["--peer-timeout", "9"], "expected beside --distributed or --coordinator"),
    ],
)
def test_wrong_options_are_refused(words, expected, monkeypatch, capsys):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    assert main(["run", "quickstart", *words]) == 2
    assert expected in capsys.readouterr().err


def test_options_of_a_single_process_start_no_team():
    assert read_launch(make_parser().parse_args(["check", "quickstart"])) is None


def test_an_address_with_colons_stands_in_brackets():
    assert read_address("[fe80::1]:51000") == ("fe80::1", 51000)


def slurm(job, size, number):
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": str(size),
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
        "SLURM_STEP_NUM_NODES": "1",
    }


def open_mpi(size, number):
    return {
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
    }


def open_mpi_4(job, size, number):
    return open_mpi(size, number) | {"OMPI_MCA_orte_hnp_uri": f"{job << 12}.0;tcp://127.0.0.1,10.1.2.3:34911"}


def open_mpi_5(job, size, number):
    return open_mpi(size, number) | {"PMIX_NAMESPACE": f"prterun-localhost-{job}@1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", [slurm, *(pytest.param(own, marks=pytest.mark.long) for own in (open_mpi_4, open_mpi_5))]
)
def test_launchers_say_who_is_who(launcher, tmp_path):
    job = 1 + secrets.randbelow(4000)
    finish([worker("launched", tmp_path, number, **launcher(job, 2, number)) for number in range(2)], tmp_path)
    assert [messages(tmp_path, number) for number in range(2)] == [["0 of 2: [0, 1]"], ["1 of 2: [0, 1]"]]


def test_open_mpi_5_names_the_computer_of_process_0():
    environment = open_mpi(4, 2) | {"PMIX_NAMESPACE": "prterun-node-12-27750@1"}
    assert from_open_mpi_5(environment) == ProcessPlace("node-12", 61440 + 27750 % 4096, 4, 2)
    assert from_open_mpi_5(environment | {"PMIX_NAMESPACE": "slurm.pmix.488141.1"}) is None


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, None),
        ({"SLURM_LOCALID": "3"}, (3,)),
        ({"SLURM_LOCALID": "3", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, (3,)),
        ({"SLURM_LOCALID": "3", "CUDA_VISIBLE_DEVICES": "3"}, (0,)),
        ({"SLURM_LOCALID": "0", "CUDA_VISIBLE_DEVICES": "0"}, (0,)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "ROCR_VISIBLE_DEVICES": "4,5"}, (0, 1)),
    ],
)
def test_a_process_takes_a_gpu_of_its_own(environment, devices):
    assert own_devices(environment) == devices


def test_limits_are_those_of_the_options():
    launch = find_launch("a:1", 2, 0, peer_timeout=7.0)
    assert (launch.place, launch.connect_timeout, launch.peer_timeout) == (ProcessPlace("a", 1, 2, 0), 300.0, 7.0)


def answers(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


EVERYWHERE = ("127.0.0.1", "127.0.0.2", "::1")
"""Who listens on all networks answers at all of them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "own"),
    [
        pytest.param("localhost", "127.0.0.1", marks=pytest.mark.long),
        ("127.0.0.2", "127.0.0.2"),
        pytest.param("[::1]", "::1", marks=pytest.mark.long),
    ],
)
def test_process_0_listens_at_the_coordinators_own_address_only(host, own):
    if own == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this computer has no IPv6")
    port = free_port()
    first = command("--coordinator", f"{host}:{port}", "--num-processes", "2", "--process-id", "0")
    try:
        until(lambda: any(answers(place, port) for place in EVERYWHERE))
        assert [place for place in EVERYWHERE if answers(place, port)] == [own]
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.1", "got 192.0.2.1, where this computer cannot listen"),  # RFC 5737: nobody's
        ("no-such-host.invalid", "got one that cannot be looked up"),
    ],
)
def test_an_address_of_another_computer_is_refused(host, words):
    with pytest.raises(rl.ConfigError, match=f"coordinator: {host}:51000: expected a name or an address.*{words}"):
        own_address(ProcessPlace(host, 51000, 2, 0))


def test_arrays_go_to_the_devices_of_this_process_as_ever():
    from rubix_like.runtime.mesh.mesh import own_copy, put, replicated  # noqa: PLC0415

    tree = {"a": np.arange(3.0), "key": jax.random.key(1)}
    placed = put(tree, replicated(rl.make_mesh(2)))
    assert placed["a"].sharding.num_devices == 2
    assert own_copy(placed)["a"] is placed["a"]
