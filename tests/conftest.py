"""Test set-up: 8 virtual CPU devices, 64-bit on, strict promotion, runtime shape and type checks of the package."""

import contextlib
import copy
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from astropy.config import ConfigItem
from checked_types import check_types
from jax.experimental.compilation_cache import compilation_cache
from quick_compiler import compile_quickly, optimised_programs

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_enable_compilation_cache", False)  # a program in the user's cache may be of other code

REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow and install")
    parser.addoption(
        "--only-slow",
        action="store_true",
        help="those that --slow adds, without checks of types and shapes at run time",
    )
    parser.addoption("--long", action="store_true", help="also run the tests marked long, slow and install")
    parser.addoption("--optimised", action="store_true", help="compile as a run does, which takes twice as long")
    parser.addoption("--clients", action="store_true", help="let tests of other programs fail where one is missing")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is imported
    if not config.getoption("--only-slow"):
        check_types()
    if not config.getoption("--optimised"):
        compile_quickly()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules without such tests are not imported for `--only-slow`."""
    if config.getoption("--only-slow") and collection_path.match("test_*.py"):
        text = collection_path.read_text(encoding="utf-8")
        return None if "mark.slow" in text or "mark.install" in text else True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    left_out = {"long": "--long"}
    if config.getoption("--only-slow"):
        items[:] = [item for item in items if {"slow", "install"} & {mark.name for mark in item.iter_markers()}]
        _begin_with_the_longest(items)
    elif not config.getoption("--slow"):
        left_out |= dict.fromkeys(("slow", "install"), "--slow")
    for item in items:
        for name in left_out.keys() & {mark.name for mark in item.iter_markers()}:
            item.add_marker(pytest.mark.skip(reason=f"{name}: run with {left_out[name]}"))


def _begin_with_the_longest(items: list[pytest.Item]) -> None:
    """Sort whole modules, each of which makes its fixtures once, so that no long one is left for the end."""
    seconds: dict[Path, float] = {}
    for item in items:
        marked = max((float(mark.args[0]) for mark in item.iter_markers("slow") if mark.args), default=0.0)
        seconds[item.path] = max(seconds.get(item.path, 0.0), marked)
    items.sort(key=lambda item: (-seconds[item.path], str(item.path)))


def pytest_collection_finish() -> None:
    """Collecting garbage took a tenth of the time: what has been imported is not gone through again each time, and more
    must have been made before the next time."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def apart_from_the_clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures of sessions and modules run in an empty folder."""
    with contextlib.chdir(tmp_path_factory.mktemp("session")):
        yield


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path) -> Iterator[None]:
    """Each test begins in an empty folder: none depends on what lies in the clone, or writes there."""
    with contextlib.chdir(tmp_path):
        yield


@pytest.fixture(autouse=True)
def in_64_bits() -> Iterator[None]:
    """A command that a test calls sets JAX up for its own precision, which would stay for the tests after it."""
    yield
    stays = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    assert stays, "this test leaves JAX in 32 bits: it needs the fixture jax_settings"


@pytest.fixture
def jax_settings() -> Iterator[None]:
    """For tests that call the command line, which sets JAX up for a run: JAX is left as it was."""
    names = (
        "jax_enable_compilation_cache",
        "jax_enable_x64",
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_compilation_cache_max_size",
    )
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def optimised() -> Iterator[None]:
    """For tests that compare programs to the last bit: they are compiled with XLA's optimisations, as a run's are."""
    with optimised_programs():
        yield


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where matplotlib is not installed."""
    for name in ["matplotlib", *(name for name in sys.modules if name.startswith("matplotlib."))]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture(scope="session", autouse=True)
def packaged_files_read_once() -> Iterator[None]:
    """Almost every test reads the packaged library and an instrument, and those of readers all maps of fields: once is
    enough, which saves 40 ms and 300 ms each time. Each check of a name looked whether a package had been installed,
    an eighth of the time: folders that Python imports from before the tests begin stay as they are."""
    from rubix_like.config import fibre_settings, loading, plug_ins  # noqa: PLC0415
    from rubix_like.config.sections import instrument, pipeline  # noqa: PLC0415
    from rubix_like.readers.fields import field_map  # noqa: PLC0415
    from rubix_like.ssp import library  # noqa: PLC0415

    read_section = _once(instrument.read_section)
    registry = sys.modules[plug_ins.Registry.__module__]
    changed = registry._changed
    times = {place: changed(place) for place in sys.path if os.path.isabs(place)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_changed", lambda place: times[place] if place in times else changed(place))
        patch.setattr(library, "read_table", _once(library.read_table))
        for module in (instrument, field_map, fibre_settings, loading, pipeline):
            patch.setattr(module, "read_section", read_section)
        yield


def _once(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Of files in the repository; a dictionary that was read is copied."""
    kept: dict[Path, Any] = {}

    def read_once(path: Path) -> Any:
        if not path.is_relative_to(REPOSITORY):
            return read(path)
        if path not in kept:
            kept[path] = read(path)
        return copy.deepcopy(kept[path]) if isinstance(kept[path], dict) else kept[path]

    return read_once


@pytest.fixture(scope="session", autouse=True)
def settings_of_astropy_read_once() -> Iterator[None]:
    """astropy looks up and checks a setting for every card of a FITS header: 4 % of the suite's time."""
    read, change = ConfigItem.__call__, ConfigItem.set
    kept: dict[ConfigItem, Any] = {}

    def read_once(item: ConfigItem) -> Any:
        if item not in kept:
            kept[item] = read(item)
        return kept[item]

    def change_kept(item: ConfigItem, value: Any) -> None:
        change(item, value)
        kept.pop(item, None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigItem, "__call__", read_once)
        patch.setattr(ConfigItem, "set", change_kept)
        yield


MAPPINGS = Path("/proc/self/maps")
MOST_MAPPINGS = 25_000
"""Of 65530 that Linux allows a process by default. Every compiled program holds some; LLVM crashes without."""


@pytest.fixture(scope="module", autouse=True)
def room_for_programs() -> Iterator[None]:
    """Programs of earlier modules are let go before there is no room for new ones."""
    yield
    if MAPPINGS.exists() and len(MAPPINGS.read_text().splitlines()) > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of the real galaxies, $RUBIX_LIKE_TEST_DATA or ../shared/data; without it tests are skipped."""
    folder = Path(os.environ.get("RUBIX_LIKE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "galaxies").is_dir():
        pytest.skip(f"real galaxies not found in {folder} (set RUBIX_LIKE_TEST_DATA)")
    return folder
