"""What is imported when it is used."""

import gc
import sys

import pytest

from rubix_like.runtime.places import found_at


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that is not imported yet, and says whether the collector was on while it was."""
    (tmp_path / "found_later.py").write_text("import gc\nwas_on = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "found_later"
    sys.modules.pop("found_later", None)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_as_it_was(module, is_on):
    """Off while a module is imported; what somebody has frozen stays so."""
    if not is_on:
        gc.disable()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        assert found_at(f"{module}:was_on") is False
        assert gc.isenabled() is is_on
        assert gc.get_freeze_count() > frozen // 2 > 0  # some of it has gone since
    finally:
        gc.unfreeze()
        gc.enable()


def test_the_collector_is_on_after_a_module_that_fails(tmp_path, monkeypatch):
    (tmp_path / "found_never.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError):
        found_at("found_never:anything")
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_module_that_is_there_is_not_looked_for_again(module):
    assert found_at(f"{module}:gc.isenabled") is gc.isenabled
    gc.collect()
    assert found_at(f"{module}:was_on") is False
