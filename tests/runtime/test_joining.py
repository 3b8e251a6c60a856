"""Several processes make one cube: the same as one makes; where one of them goes, all end with a sentence.

Those that start processes run with --slow.
"""

import ast
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import h5py
import jax
import numpy as np
import process_worker
import pytest
from astropy.io import fits
from quick_compiler import quick_environment

import rubix_like as rl
from rubix_like.cli.main import make_parser
from rubix_like.runtime.processes.coordinator import Hub
from rubix_like.runtime.processes.jax_processes import JaxProcesses
from rubix_like.runtime.processes.joining import meet
from rubix_like.runtime.processes.launch import Launch, find_launch, from_open_mpi_5, read_address, read_launch
from rubix_like.runtime.processes.process_group import SINGLE
from rubix_like.runtime.processes.socket_messages import Kind, Line, pack, unpack

COUNT = 230
REPOSITORY = Path(__file__).resolve().parents[2]
EXIT_PEER_LOST = 3
LAUNCHERS = ("SLURM_", "OMPI_", "PMIX_", "KUBERNETES_", "JAX_COORDINATOR", "CLOUD_TPU", "TPU_")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def write_snapshot(path, count):
    """A disc of stars."""
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
    return path


def start(scenario, folder, size, devices=1):
    """The processes of a scenario; each one's messages go to a file."""
    port = free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": str(REPOSITORY)}
    environment |= quick_environment()
    script = str(REPOSITORY / "tests" / "process_worker.py")
    processes = []
    for number in range(size):
        words = [sys.executable, script, scenario, str(folder), str(port), str(size), str(number)]
        with (folder / f"said_{number}").open("w") as said:
            processes.append(subprocess.Popen(words, env=environment, stdout=said, stderr=said))
    return processes


def messages(folder, number):
    """What a process said, without what the libraries did."""
    lines = (folder / f"said_{number}").read_text().splitlines()
    return [line for line in lines if not line.startswith("[Gloo]")]


def finish(processes, folder):
    codes = [process.wait(timeout=300) for process in processes]
    assert codes == [0] * len(codes), [messages(folder, number) for number in range(len(codes))]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two processes with two devices each; what each of them saved."""
    folder = tmp_path_factory.mktemp("together")
    write_snapshot(folder / "snapshot.hdf5", COUNT)
    finish(start("together", folder, 2, devices=2), folder)
    return folder, [dict(np.load(folder / f"together_{number}.npz")) for number in range(2)]


def facts(saved):
    return ast.literal_eval(str(saved["facts"]))


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 5e-6), ("float64", 1e-12)])
def test_two_processes_make_the_cube_of_one(together, precision, tolerance):
    folder, saved = together
    alone = rl.run(process_worker.config(folder, precision, devices={"data": 1}), folder / f"alone_{precision}.fits")
    flux = np.asarray(alone.flux)
    for own in saved:
        assert np.abs(own[precision] - flux).max() < tolerance * np.abs(flux).max()
    with fits.open(folder / f"{precision}.fits") as ours, fits.open(folder / f"alone_{precision}.fits") as theirs:
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
    for name in ("DATA", "STAT", "DQ"):
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


@pytest.mark.slow
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
    ("scenario", "victim", "blow", "words"),
    [
        ("writing", 1, signal.SIGKILL, "has ended without a word: killed, out of memory or crashed"),
        ("endless", 0, signal.SIGKILL, "has ended without a word: killed, out of memory or crashed"),
        ("endless", 1, signal.SIGSTOP, "has not been heard of for 6 s (--peer-timeout): stopped or cut off"),
    ],
)
def test_where_one_goes_all_end_with_one_sentence(tmp_path, scenario, victim, blow, words):
    processes = start(scenario, tmp_path, 2)
    try:
        until((tmp_path / f"ready_{1 - victim}").exists)
        struck = time.monotonic()
        processes[victim].send_signal(blow)
        assert processes[1 - victim].wait(timeout=60) == EXIT_PEER_LOST
        assert time.monotonic() - struck < process_worker.PEER_TIMEOUT + 10
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = messages(tmp_path, 1 - victim)
    assert len(said) == 1, said
    assert said[0].startswith(f"rubix-like: process {victim} (")
    assert words in said[0]
    assert [path.name for path in tmp_path.iterdir() if "half" in path.name] == []


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


def command(*words):
    """A `rubix-like run quickstart` on its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return subprocess.run(
        [sys.executable, "-m", "rubix_like.cli", "run", "quickstart", *words],
        env=environment | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "process 1 did not reach process 0 within 1 s (--connect-timeout)"),
        (0, "1 of 2 processes (number 1) did not come to process 0 within 1 s (--connect-timeout)"),
    ],
)
def test_a_coordinator_that_is_not_there_and_a_process_that_never_comes(number, words):
    done = command(
        *("--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", "2", "--process-id", str(number)),
        *("--connect-timeout", "1"),
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


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
        (["--distributed"], "expected to be started by Slurm's srun"),
    ],
)
def test_wrong_options_are_refused(words, expected, monkeypatch):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    with pytest.raises(rl.ConfigError, match=expected):
        read_launch(make_parser().parse_args(["run", "quickstart", *words]))


def test_options_of_a_single_process_start_no_team():
    assert read_launch(make_parser().parse_args(["check", "quickstart"])) is None


def test_an_address_with_colons_stands_in_brackets():
    assert read_address("[fe80::1]:51000") == ("fe80::1", 51000)


SLURM = {
    "SLURM_JOB_ID": "4100",
    "SLURM_STEP_NODELIST": "node[007-009],other",
    "SLURM_NTASKS": "12",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_NODES": "4",
}
OPEN_MPI_4 = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
OPEN_MPI_5 = {
    "PMIX_NAMESPACE": "prterun-node-12-27750@1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.mark.parametrize(
    ("environment", "host", "place"),
    [
        (SLURM, "node007", (12, 5, 1)),
        (OPEN_MPI_4, "10.96.0.1", (4, 3, 1)),
        (OPEN_MPI_5, "node-12", (4, 2, 0)),
        (SLURM | OPEN_MPI_5, "node-12", (4, 2, 0)),
    ],
)
def test_launchers_are_recognised(environment, host, place, monkeypatch):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    launch = find_launch(peer_timeout=7.0)
    assert (launch.host, (launch.size, launch.number, launch.local), launch.peer_timeout) == (host, place, 7)
    assert 61440 <= launch.port < 65536


def test_a_slurm_job_without_srun_is_told_so(monkeypatch):
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with pytest.raises(rl.ConfigError, match="start the command with srun"):
        find_launch()


def test_other_jobs_of_pmix_are_not_open_mpi():
    assert from_open_mpi_5(OPEN_MPI_5 | {"PMIX_NAMESPACE": "slurm.pmix.488141.1"}, {}) is None


def test_values_keep_their_bits_and_nothing_else_is_unpacked():
    value = ({"a": np.float64(1) / 3, "b": (None, "text", 3, {4})}, np.arange(4.0) / 7, Launch("h", 1, 2, 0))
    back = unpack(pack(value))
    assert back[0] == value[0]
    assert back[2] == value[2]
    np.testing.assert_array_equal(back[1], value[1])
    for stranger in (os.system, print, rl.load_config, subprocess.Popen):
        with pytest.raises(Exception, match="between processes"):
            unpack(pack(stranger))
    for module, name in (("jax_processes", "subprocess.Popen"), ("hub", "socket.socket"), ("jax_processes", "Path")):
        with pytest.raises(Exception, match=f"{module}.{name}: expected .* between processes"):
            unpack(f"crubix_like.{module}\n{name}\n.".encode())


def test_a_silent_line_and_a_closed_one():
    near, far = (Line(end, 0.1) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    with pytest.raises(TimeoutError):
        near.receive()
    near.close()
    far.close()
    near, far = (Line(end, 60.0) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    sending = threading.Thread(target=far.send, args=(Kind.VALUE, b"x" * 3_000_000))
    sending.start()
    assert near.receive() == (Kind.VALUE, b"x" * 3_000_000)
    sending.join()
    far.close()
    with pytest.raises(ConnectionError):
        near.receive()
    near.close()


def in_threads(size, work, sizes=None):
    """What `work(team)` gives or raises for every member of a team whose processes are threads here."""
    port, results = free_port(), [None] * size
    launches = [Launch("127.0.0.1", port, (sizes or [size] * size)[n], n, None, 60.0, 60.0) for n in range(size)]

    def member(launch):
        try:
            team = meet(launch)
            results[launch.number] = work(team)
            team.leave()
        except (ValueError, OSError) as error:
            results[launch.number] = error

    threads = [threading.Thread(target=member, args=(launch,)) for launch in launches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_team_exchanges_adds_up_and_shares_errors():
    def work(team):
        assert team.exchange(lambda: team.number) == [0, 1, 2]
        assert team.in_first(lambda: "first") == "first"
        assert team.each(lambda: team.number * 2) == team.number * 2
        with pytest.raises(ValueError if team.number != 1 else ZeroDivisionError, match="division by zero"):
            team.exchange(lambda: 1 / (1 - team.number))
        return team.total(lambda: np.full(2, 0.1 * team.number))

    results = in_threads(3, work)
    expected = np.sum([np.full(2, 0.1 * n) for n in range(3)], axis=0)
    for own in results:
        np.testing.assert_array_equal(own, expected)


def test_processes_of_different_runs_do_not_join():
    results = in_threads(2, lambda team: team.number, sizes=[2, 3])
    assert all("process 1" in str(error) and "--num-processes 3, process 0 with 2" in str(error) for error in results)


def answers(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


EVERYWHERE = ("127.0.0.1", "127.0.0.2", "::1")
"""Who listens on all networks answers at all of them."""


@pytest.mark.parametrize(("host", "own"), [("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "::1")])
def test_process_0_listens_at_the_coordinators_own_address_only(host, own):
    if own == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this computer has no IPv6")
    port = free_port()
    hub = Hub(Launch(host, port, 2, 0, None, 60.0, 1.0))
    assert [place for place in EVERYWHERE if answers(place, port)] == [own]
    hub.close()


@pytest.mark.slow
def test_the_service_of_jax_listens_at_the_coordinators_own_address_only():
    launch = Launch("localhost", free_port(), 1, 0, None, 60.0, 60.0)
    with JaxProcesses(launch, SINGLE)._service() as port:
        assert [place for place in EVERYWHERE if answers(place, port)] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.1", "got 192.0.2.1, where this computer cannot listen"),  # RFC 5737: nobody's
        ("no-such-host.invalid", "got one that cannot be looked up"),
    ],
)
def test_an_address_of_another_computer_is_refused(host, words):
    with pytest.raises(rl.ConfigError, match=f"--coordinator {host}:51000: expected a name or an address.*{words}"):
        Hub(Launch(host, 51000, 2, 0))


def test_arrays_go_to_the_devices_of_this_process_as_ever():
    from rubix_like.runtime.mesh.mesh import replicated  # noqa: PLC0415
    from rubix_like.runtime.mesh.placement import own_copy, put  # noqa: PLC0415

    tree = {"a": np.arange(3.0), "key": jax.random.key(1)}
    placed = put(tree, replicated(rl.make_mesh(2)))
    assert placed["a"].sharding.num_devices == 2
    assert own_copy(placed)["a"] is placed["a"]
