"""Places in the package as text, `module:attribute`, for what is imported when it is used."""

import importlib
import operator
from typing import Any


def found_at(place: str) -> Any:
    """What is at `module:attribute`; the attribute may have dots."""
    module, attribute = place.split(":")
    return operator.attrgetter(attribute)(importlib.import_module(module))
