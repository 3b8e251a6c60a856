"""Optional packages: imported when they are used, or one sentence with the extra that brings them."""

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rubix_like import ConfigError
from rubix_like.extend import import_optional
from rubix_like.runtime.optional_packages import EXTRAS

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_every_package_is_in_its_extra():
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        assert any(wanted.startswith(f"{package}>") for wanted in extras[extra]), package


def test_gpus_are_given_no_jax_that_scatters_slowly():
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    allowed = Requirement(*extras["cuda"]).specifier
    assert [version in allowed for version in ("0.10.1", "0.10.2", "0.11.0", "0.11.2")] == [True, False, False, True]


def test_a_package_that_is_there_is_imported():
    assert import_optional("json.decoder", "this test") is sys.modules["json.decoder"]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("matplotlib.figure", "a test needs the package matplotlib: pip install 'rubix-like[plots]'; and a screen"),
        ("a_package_of_others.part", "a test needs the package a_package_of_others: pip install a_package_of_others; "),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(module, message, monkeypatch):
    monkeypatch.setitem(sys.modules, module.split(".")[0], None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as caught:
        import_optional(module, "a test", then="; and a screen")
    assert str(caught.value).startswith(message)


def test_another_error_of_a_package_is_not_taken_for_its_absence(tmp_path, monkeypatch):
    (tmp_path / "half_broken.py").write_text("raise RuntimeError('no data')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="no data"):
        import_optional("half_broken", "a test")
