"""Places in the package as text, `module:attribute`, for what is imported when it is used."""

import contextlib
import gc
import importlib
import operator
import sys
from collections.abc import Iterator
from typing import Any


def found_at(place: str) -> Any:
    """The object at `module:attribute`; the attribute may have dots."""
    module, attribute = place.split(":")
    with contextlib.nullcontext() if module in sys.modules else _nothing_collected():
        return operator.attrgetter(attribute)(importlib.import_module(module))


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """While modules are imported: to look for garbage takes a sixth of that time, and there is none.

    What was made then counts as old afterwards, so that the next look at what is new does not take that time either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() == 0:  # else somebody has frozen objects who means them to stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()
