"""Memory of compiled computations against sizes known by hand; nothing large is ever allocated."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.units import Quantity
from jax.errors import JaxRuntimeError

from rubix_like import ConfigError, Pipeline, load_galaxy, make_mesh, run
from rubix_like.runtime.exit_codes import explained_exhaustion
from rubix_like.runtime.memory import (
    MemoryNeed,
    available_memory,
    check_cube_fits,
    check_memory,
    fits_memory,
    free_memory,
    memory_need,
)


def compiled(size):
    """x -> x + 1 on `size` 4-byte numbers."""
    return jax.jit(lambda x: x + np.float32(1)).lower(jax.ShapeDtypeStruct((size,), jnp.float32)).compile()


def test_need_of_a_small_computation():
    """Argument and result of 4 kB each; on two devices twice; or the result of each device and the file beside it."""
    assert memory_need(compiled(1000), make_mesh(1), 0) == MemoryNeed(device=8000, host=8000)
    assert memory_need(compiled(1000), make_mesh(2), 0) == MemoryNeed(device=8000, host=16000)
    assert memory_need(compiled(1000), make_mesh(2), 10000) == MemoryNeed(device=8000, host=18000)


def test_a_run_beyond_the_memory_is_refused():
    need = memory_need(compiled(1 << 50), make_mesh(2), 0)
    assert need == MemoryNeed(device=1 << 53, host=1 << 54)
    with pytest.raises(ConfigError, match=r"memory: .* the run takes 18 PB; .*instrument\.fov.*devices\.data"):
        check_memory(need, make_mesh(2))
    with pytest.raises(ConfigError) as refused:
        check_memory(need, make_mesh(1))
    assert "devices.data" not in str(refused.value)
    small = memory_need(compiled(1000), make_mesh(1), 0)
    check_memory(small, make_mesh(1))
    assert (fits_memory(need), fits_memory(small)) == (False, True)


def test_bare_cube():
    """3 numbers of 4 bytes for each of 1e6 x 1e6 x 10 voxels."""
    with pytest.raises(ConfigError, match=r"1000000 x 1000000 spaxels x 10 bins takes at least 120 TB"):
        check_cube_fits(1_000_000, 1_000_000, 10)
    with pytest.raises(ConfigError, match=r"10 bins takes at least 60 TB in each of 2 processes; make"):
        check_cube_fits(1_000_000, 1_000_000, 10, 2)
    check_cube_fits(10, 10, 10)


TOO_MANY = {"reader": "synthetic", "n_stars": 10**10, "n_gas": 10**10}


@pytest.mark.parametrize("door", [load_galaxy, run])
def test_a_synthetic_galaxy_is_sized_before_it_is_made(door):
    """Its base draws alone, nine numbers of 8 bytes for each of 2e10 particles, take 1.44 TB."""
    config = {"galaxy": TOO_MANY, "observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "1 arcsec"}}
    with pytest.raises(ConfigError, match=r"making 20000000000 synthetic particles takes (\d\.?\d*) TB") as refused:
        door(config)
    assert 1.44 < float(re.search(r"takes (\S+) TB", str(refused.value))[1]) < 1.44 * 5


MEASURE = """
import os, subprocess, sys
command = subprocess.Popen([sys.executable, "-m", "rubix_like.cli", *sys.argv[1:]], stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(command.pid, 0)
print("peak", usage.ru_maxrss)
sys.exit(status != 0)
"""
"""Started by a small process: Linux counts the memory of the process that started a command as the command's, too."""


def ended(*words):
    """What a command prints, and its peak memory in bytes."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *words], capture_output=True, text=True, check=True)
    return done.stdout, int(done.stdout.split()[-1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="others count the peak memory otherwise")
@pytest.mark.slow(40)
@pytest.mark.parametrize("n_stars", [50_000, 4_000_000])
def test_check_says_what_a_run_takes(n_stars, tmp_path, monkeypatch):
    """Within a quarter of the peak of the whole process; of many stars it makes only some."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    settings = ("--set", f"galaxy.n_stars={n_stars}", f"output.path={tmp_path / 'cube.fits'}")
    output, checking = ended("check", "quickstart", *settings)
    said = Quantity(re.search(r"^memory +about (\S+ \w+)", output, re.MULTILINE)[1]).to_value("byte")
    _, peak = ended("run", "quickstart", *settings)
    assert abs(said / peak - 1) < 0.25
    assert f": {n_stars} stars" in output
    assert n_stars < 10**6 or checking < 0.75 * peak


def test_the_bare_cube_is_measured_against_what_is_available():
    available = available_memory()
    if available is None:
        pytest.skip("this system does not tell its memory")
    check_cube_fits(1, 1, available // 12 // 2)
    with pytest.raises(ConfigError):
        check_cube_fits(1, 1, available // 12 * 2)
    check_cube_fits(1, 1, available // 12 * 2, 4)


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="not Linux")
def test_available_memory_is_part_of_the_computer_s():
    page = os.sysconf("SC_PAGE_SIZE")
    available = available_memory()
    assert available is not None
    assert 0 < available <= page * os.sysconf("SC_PHYS_PAGES")
    assert available > 0.3 * page * os.sysconf("SC_AVPHYS_PAGES")


def test_exhaustion_in_numpy_and_in_xla_is_explained():
    for allocate in (np.empty, lambda size: jnp.zeros(size).block_until_ready()):
        with pytest.raises(MemoryError, match=r"memory: there is not enough .*fewer particles"), explained_exhaustion():
            allocate(1 << 50)


def test_other_errors_pass_unchanged():
    with pytest.raises(JaxRuntimeError, match="INVALID_ARGUMENT"), explained_exhaustion():
        raise JaxRuntimeError("INVALID_ARGUMENT: something else")
    with pytest.raises(ValueError, match="plain"), explained_exhaustion():
        raise ValueError("plain")


def test_a_field_beyond_any_memory_is_refused_in_python():
    """By a pipeline; a run already finds the disk too small."""
    instrument = {"name": "muse", "pixel_scale": 0.01, "fov": 1000}
    config = {
        "galaxy": {"reader": "synthetic"},
        "observation": {"redshift": 0.1, "align": "none"},
        "instrument": instrument,
    }
    with pytest.raises(ConfigError, match=r"memory: .* a cube of 100000 x 100000 spaxels .* instrument\.fov"):
        Pipeline.from_config(config)
    with pytest.raises(OSError, match=r"cannot write cube.fits: about 184 TB are needed"):
        run(config)


# ---------------------------------------------------------------- limits of control groups


def group(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")


def free(tmp_path, membership):
    (tmp_path / "cgroup").write_text(membership)
    return free_memory(tmp_path / "cgroup", tmp_path / "fs")


def test_second_version(tmp_path):
    """The least of all groups above the own one; 'max' is no limit; files in memory can be dropped."""
    group(tmp_path / "fs", {"memory.stat": "anon 5"})
    group(tmp_path / "fs/slurm/job_7", {"memory.max": 4000, "memory.current": 1500, "memory.stat": "inactive_file 300"})
    group(tmp_path / "fs/slurm/job_7/step_0", {"memory.max": "max", "memory.current": 1200})
    assert free(tmp_path, "0::/slurm/job_7/step_0\n") == 4000 - 1500 + 300
    group(tmp_path / "fs/slurm", {"memory.max": 9000, "memory.current": 8500})
    assert free(tmp_path, "0::/slurm/job_7/step_0\n") == 500


def test_in_a_container_the_group_is_the_mounted_root(tmp_path):
    group(tmp_path / "fs", {"memory.max": 1000, "memory.current": 1200})
    assert free(tmp_path, "0::/docker/1234\n") == 0


def test_first_version(tmp_path):
    files = {"memory.limit_in_bytes": 3000, "memory.usage_in_bytes": 1000, "memory.stat": "total_inactive_file 10"}
    group(tmp_path / "fs/memory/job", files)
    assert free(tmp_path, "5:devices:/\n4:memory:/job\n0::/\n") == 2010


@pytest.mark.parametrize("membership", ["4:memory:/job\n", "0::/\n", "3:cpuset:/job\n"])
def test_no_limit(tmp_path, membership):
    group(tmp_path / "fs/memory/job", {"memory.limit_in_bytes": 9223372036854771712, "memory.usage_in_bytes": 1000})
    assert free(tmp_path, membership) is None
    assert free_memory(tmp_path / "nothing", tmp_path) is None
