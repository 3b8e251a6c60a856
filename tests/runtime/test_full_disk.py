"""A disk that is full at any moment of writing HDF5: one error with the remedy, no other file, and no crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, resource, sys
from collections import Counter
from pathlib import Path
import jax
jax.config.update("jax_enable_x64", True)
from small import full_cube
from small_results import fit_result, manifest_of, sample_result, some_simulations
from rubix_like.inference.simulation.simulation_files import shard_path, write_shard

def shrink_limit(folder, size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def fill_disk(folder, size):
    shrink_limit(folder, resource.RLIM_INFINITY)
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast = folder / "ballast"
    held = ballast.stat().st_size if ballast.exists() else 0
    os.truncate(ballast, 0) if held else None
    ballast.write_bytes(bytes(max(free + held - size, 0)))

folder, leave = Path(sys.argv[1]), {"limit": shrink_limit, "disk": fill_disk}[sys.argv[2]]
simulations = some_simulations()
manifest = manifest_of(simulations, "hdf5")
writers = {
    "cube": full_cube().write,
    "fit": fit_result().write,
    "samples": sample_result().write,
    "simulations": lambda path: write_shard(simulations, manifest, path.parent, 0),
}
for kind, write in writers.items():
    path = folder / "a.h5" if kind != "simulations" else shard_path(folder, 0)
    write(path)
    size, before = path.stat().st_size, path.read_bytes()
    outcomes = Counter()
    for number in range(13):
        leave(folder, size * number // 12)
        try:
            write(path)
            outcomes["whole"] += 1
        except OSError as error:
            assert str(error).startswith(f"cannot write {path}: the disk or the quota is full"), error
            assert path.read_bytes() == before
            outcomes["refused"] += 1
    leave(folder, resource.RLIM_INFINITY if sys.argv[2] == "limit" else 4 * size)
    path.unlink()
    assert set(os.listdir(folder)) <= {"ballast"}, os.listdir(folder)
    print(kind, outcomes["refused"] >= 10, outcomes["whole"] >= (sys.argv[2] == "limit"))
"""


@pytest.fixture
def small_disk(tmp_path):
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=False).returncode
    ):
        pytest.skip("a disk of its own can be mounted by root alone")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.slow(8)
@pytest.mark.parametrize("means", ["limit", "disk"])
def test_a_full_disk_is_an_error_at_any_moment(means, tmp_path, request):
    """By a limit on the size of files, and on a real disk, whose blocks end elsewhere."""
    folder = request.getfixturevalue("small_disk") if means == "disk" else tmp_path
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), means]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"{kind} True True" for kind in ("cube", "fit", "samples", "simulations")]
