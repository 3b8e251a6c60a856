"""Packaged files and the cache folder."""

from pathlib import Path

import pytest

from rubix_like import ConfigError
from rubix_like.extend import cache_directory, resource, resource_names


def test_embedded_data_are_found_with_and_without_suffix():
    assert "popstar" in resource_names("data")
    assert resource("data", "popstar").is_file()
    assert resource("data", "popstar.h5") == resource("data", "popstar")


@pytest.mark.parametrize("kind", ["configs", "pipelines", "instruments", "bundles", "data", "skies"])
def test_every_name_of_a_kind_is_a_file(kind):
    for name in resource_names(kind):
        assert resource(kind, name).is_file()


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="no 'popstr' among the packaged data; did you mean 'popstar'"):
        resource("data", "popstr")


def test_a_name_cannot_leave_its_folder():
    with pytest.raises(ConfigError, match="among the packaged data"):
        resource("data", "../pyproject")


def test_an_unknown_kind_suggests_the_nearest():
    with pytest.raises(ConfigError, match="unknown kind of resource 'config'; did you mean 'configs'"):
        resource("config", "quickstart")


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("RUBIX_LIKE_CACHE", "~/somewhere")
    assert cache_directory() == Path.home() / "somewhere"
    monkeypatch.delenv("RUBIX_LIKE_CACHE")
    assert cache_directory().name == "rubix_like"
