"""Compiled programs are kept where the user keeps none himself, and JAX is left as it was."""

import jax
import jax.numpy as jnp
import pytest

from rubix_like.runtime import compiled_programs
from rubix_like.runtime.arrays_on_disk import compiled_folder
from rubix_like.runtime.compiled_programs import programs_kept

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
