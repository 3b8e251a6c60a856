"""Compiled programs are kept on disk where the user keeps none himself, and JAX is left as it was; they are dropped
from a process before it has no memory maps left."""

import logging
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from small import few_stars, muse

from rubix_like import Pipeline, load_config, load_galaxy
from rubix_like.galaxy import synthetic
from rubix_like.runtime import compiled_programs
from rubix_like.runtime.arrays_on_disk import compiled_folder
from rubix_like.runtime.compiled_programs import HELD, programs_kept

pytestmark = pytest.mark.usefixtures("jax_settings")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(compiled_programs, "_SHORTEST_SECONDS", 0.0)


def folder_of_jax():
    return jax.config.values["jax_compilation_cache_dir"]


def kept():
    return sorted(path.name for path in compiled_folder().glob("*-cache"))


def test_programs_are_kept_inside_alone():
    jax.jit(lambda x: x + 1)(jnp.ones(3))  # JAX has looked for a cache before, and found none
    with programs_kept():
        jax.jit(lambda x: jnp.sin(x) @ jnp.cos(x))(jnp.ones(31))
    inside = kept()
    assert inside
    assert folder_of_jax() is None
    jax.jit(lambda x: jnp.cos(x) @ jnp.cos(x))(jnp.ones(32))
    assert kept() == inside


def test_a_cache_of_the_user_stays(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "other"))
    with programs_kept():
        assert folder_of_jax() == str(tmp_path / "other")
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    with programs_kept():
        assert folder_of_jax() is None


def test_a_place_that_cannot_be_made_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "file"))
    with programs_kept():
        assert folder_of_jax() is None


MAPS = Path("/proc/self/maps")
ONLY_LINUX = pytest.mark.skipif(not MAPS.exists(), reason="other systems have no limit on memory maps")
GALAXY = few_stars(8, 0.05)


def taken():
    return len(MAPS.read_text().splitlines())


@pytest.fixture
def limit_to(tmp_path, monkeypatch):
    """Sets the limit on memory maps so that a share of it is taken."""

    def set_limit(share):
        (tmp_path / "max_map_count").write_text(f"{int(taken() / share)}\n")
        monkeypatch.setattr(compiled_programs, "_MOST_MAPS", tmp_path / "max_map_count")

    return set_limit


def small_pipeline(n):
    config = {"observation": {"redshift": 0.05}, "instrument": muse(fov=f"{0.2 * n} arcsec", stop=5050)}
    return Pipeline.from_config({**config, "engine": {"method": "direct"}, "devices": {"data": 1}}, GALAXY)


def n_compiled(pipeline):
    """How many programs of this pipeline are held."""
    return pipeline.compiled(*pipeline.arguments(GALAXY))._cache_size()


@ONLY_LINUX
def test_the_least_recently_used_programs_go_first(limit_to, monkeypatch):
    HELD.programs.clear()
    first, second, third = map(small_pipeline, (2, 3, 4))
    for pipeline in (first, second, first):
        pipeline(GALAXY)
    before = taken()
    limit_to(0.55)
    monkeypatch.setattr(compiled_programs, "_ROOMY", 0.54)
    third(GALAXY)
    assert taken() < before + 20  # the second made room for the third
    assert [n_compiled(pipeline) for pipeline in (first, third, second)] == [1, 1, 0]


def test_each_size_of_galaxy_can_be_dropped_alone():
    HELD.programs.clear()
    pipeline = small_pipeline(2)
    for galaxy in (GALAXY, few_stars(100, 0.05)):
        pipeline(galaxy)
    assert [program._cache_size() for program in HELD.programs.values()] == [1, 1]


@ONLY_LINUX
def test_functions_of_modules_forget_what_they_compiled(limit_to):
    load_galaxy(load_config("quickstart", overrides={"galaxy.n_stars": 30}))
    assert synthetic.sampled._cache_size() > 0
    limit_to(0.55)
    with programs_kept():
        assert synthetic.sampled._cache_size() == 0


@ONLY_LINUX
def test_programs_of_the_caller_stay(limit_to, caplog):
    """Where they take half of the maps, one message says how to drop them, and again when they do so later."""
    traced = []

    @jax.jit
    def doubled(x):
        traced.append(x.shape)
        return 2 * x

    def messages():
        with programs_kept():
            found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        caplog.clear()
        return found

    doubled(jnp.ones(3))
    limit_to(10)
    messages()
    limit_to(0.1)
    assert messages() == []
    limit_to(0.6)
    (message,) = messages()
    assert "jax.clear_caches()" in message
    assert messages() == []
    doubled(jnp.ones(3))
    assert len(traced) == 1
    jax.clear_caches()
    doubled(jnp.ones(3))
    assert len(traced) == 2
    limit_to(0.1)
    assert messages() == []
    limit_to(0.6)
    assert len(messages()) == 1


def test_other_systems_have_no_limit(tmp_path, monkeypatch, caplog):
    pipeline = small_pipeline(2)
    pipeline(GALAXY)
    (tmp_path / "max_map_count").write_text("1\n")
    monkeypatch.setattr(compiled_programs, "_MOST_MAPS", tmp_path / "max_map_count")
    monkeypatch.setattr(compiled_programs, "_MAPS", tmp_path / "maps")
    with programs_kept():
        assert n_compiled(pipeline) == 1
    assert "memory maps" not in caplog.text


def test_all_compiled_functions_can_be_dropped():
    """`equinox.filter_jit` has no way to."""
    package = Path(compiled_programs.__file__).parents[1]
    assert [path for path in package.rglob("*.py") if re.search(r"\bfilter_jit\b", path.read_text())] == []
