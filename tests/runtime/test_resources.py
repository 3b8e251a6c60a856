"""Packaged files and the cache folder."""

from pathlib import Path

import pytest

from rubix_like import ConfigError
from rubix_like.extend import cache_directory, resource, resource_names


def test_embedded_data_are_found_with_and_without_suffix():
    assert "popstar" in resource_names("data")
    assert resource("data", "popstar").is_file()
    assert resource("data", "popstar.h5") == resource("data", "popstar")


def test_every_name_of_a_kind_is_a_file():
    for kind in ("configs", "pipelines", "instruments", "bundles", "data", "skies"):
        assert all(resource(kind, name).is_file() for name in resource_names(kind))


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("data", "popstr", "no 'popstr' among the packaged data; did you mean 'popstar'"),
        ("data", "../pyproject", "among the packaged data"),
        ("config", "quickstart", "unknown kind of resource 'config'; did you mean 'configs'"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(kind, name, words):
    """And none can leave its folder."""
    with pytest.raises(ConfigError, match=words):
        resource(kind, name)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("RUBIX_LIKE_CACHE", "~/somewhere")
    assert cache_directory() == Path.home() / "somewhere"
    monkeypatch.delenv("RUBIX_LIKE_CACHE")
    assert cache_directory().name == "rubix_like"
