"""Compiled programs: kept on disk for the next process, and dropped from this one while it has room for more."""

import functools
import gc
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
from jax.experimental.compilation_cache import compilation_cache

from rubix_like.runtime.arrays_on_disk import COMPILED_LIMIT_BYTES, compiled_folder

_SHORTEST_SECONDS = 0.02
"""Programs that take less to compile are not kept."""

_ENABLED = "jax_enable_compilation_cache"
_FOLDER = "jax_compilation_cache_dir"


def set_up_jax(precision: str) -> None:
    """64-bit numbers where asked for, and a cache of compiled programs that outlives the command; for commands."""
    jax.config.update("jax_enable_x64", precision == "float64")
    keep_programs()


def keep_programs() -> None:
    """From now on JAX keeps what it compiles, in the folder of compiled programs; nothing where there can be none."""
    for name, value in _settings().items():
        jax.config.update(name, value)


@contextmanager
def programs_kept() -> Iterator[None]:
    """Inside, JAX keeps what it compiles, as the commands do; afterwards its settings are as before. First there is
    made room for more programs in this process.

    Where JAX has a cache already (`jax_compilation_cache_dir`) or none is wanted (`jax_enable_compilation_cache`),
    nothing is changed.
    """
    HELD.make_room()
    wanted = getattr(jax.config, _ENABLED) and getattr(jax.config, _FOLDER) is None
    before = {name: getattr(jax.config, name) for name in _settings()} if wanted else {}
    if not before:
        yield
        return
    keep_programs()
    compilation_cache.reset_cache()  # JAX looks for a cache once, at its first program
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def _settings() -> dict[str, Any]:
    """JAX's settings for the folder; none where it cannot be made."""
    folder = compiled_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    return {
        _FOLDER: str(folder),
        "jax_persistent_cache_min_compile_time_secs": _SHORTEST_SECONDS,
        "jax_compilation_cache_max_size": COMPILED_LIMIT_BYTES,
    }


_MAPS = Path("/proc/self/maps")
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")

_CROWDED, _ROOMY = 1 / 2, 1 / 4
"""Shares of the memory maps of a process: from the first one on programs are dropped, until the second is reached."""

_MOST_HELD = 128

_CROWDED_NOTE = (
    "half of the memory maps that Linux allows a process (vm.max_map_count) are taken, most likely by compiled "
    "programs that are not rubix_like's; where no map is left, XLA ends the process: call jax.clear_caches() from "
    "time to time, e.g. after each run"
)

_P = ParamSpec("_P")
_R = TypeVar("_R")


def taken_maps() -> float:
    """The share of the memory maps that Linux allows this process which it has; 0 on other systems.

    On CPUs XLA keeps some hundred maps for each program, and ends the process by SIGSEGV where it gets no more.
    """
    if not (_MAPS.exists() and _MOST_MAPS.exists()):
        return 0.0
    return _MAPS.read_bytes().count(b"\n") / int(_MOST_MAPS.read_text())


class HeldPrograms:
    """The jitted functions of a process by what they are compiled for, the least recently used first."""

    def __init__(self) -> None:
        self.programs: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.RLock()
        self._is_noted = False

    def find(self, key: Hashable, build: Callable[[], _R]) -> _R:
        """The program held under `key`, or else the one that `build` makes, which is then held."""
        with self._lock:
            if key not in self.programs:
                self.make_room()
                if len(self.programs) >= _MOST_HELD:
                    self.programs.popitem(last=False)
                self.programs[key] = build()
            self.programs.move_to_end(key)
            return self.programs[key]

    def make_room(self, *, alone: bool = False) -> None:
        """Drop programs, the least recently used first, where half of the memory maps are taken, until a quarter is.

        Where that is not enough, all jitted functions of the package forget what they have compiled. `alone`: nothing
        else computes in this process, so that all of JAX's caches are cleared where half is still taken; else a message
        in the log says how.
        """
        with self._lock:
            if taken_maps() < _CROWDED:
                self._is_noted = False
                return
            while self.programs and taken_maps() > _ROOMY:
                self.programs.popitem(last=False)
            if taken_maps() > _ROOMY:
                for function in _package_functions():
                    function.clear_cache()
                gc.collect()
            if taken_maps() < _CROWDED:
                return
            if alone:
                jax.clear_caches()
            elif not self._is_noted:
                logging.getLogger("rubix_like").warning(_CROWDED_NOTE)
                self._is_noted = True


HELD = HeldPrograms()


def held(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function that makes jitted functions from hashable arguments, and makes them once while they are held."""

    @functools.wraps(build)
    def find(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return HELD.find((build, args, *kwargs.items()), lambda: build(*args, **kwargs))

    return find


def _package_functions() -> Iterator[Any]:
    jitted = type(jax.jit(len))
    modules = {name: vars(module) for name, module in list(sys.modules.items()) if name.startswith("rubix_like.")}
    for name, members in modules.items():
        for member in list(members.values()):
            if isinstance(member, jitted) and member.__module__ == name:
                yield member
