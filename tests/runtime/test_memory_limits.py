"""Limits of batch systems and containers: what the files of control groups say."""

import pytest

from rubix_like.runtime.memory import free_memory


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
