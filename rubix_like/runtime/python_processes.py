"""Python processes that this one starts, which import nothing from the current folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


@contextmanager
def safe_python() -> Iterator[None]:
    """Inside, new processes of Python do not look for modules in the current folder (as with `python -P`).

    Everything that starts one does so here: a file of the user's called pip.py or random.py would be run instead of the
    module that is meant. Processes that start with the paths of this one still find its modules.
    """
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before
