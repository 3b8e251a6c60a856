"""Messages of the library in the words of the command line: arguments of Python as options."""

import re
from collections.abc import Iterable

_OTHER_NAMES = {"--spaxel": "spaxels"}
"""Options that are not called like the argument that they stand for."""


def options_in(usage: str) -> list[str]:
    """The options that a command's line of usage names."""
    return re.findall(r"--[a-z][a-z-]*", usage)


def in_options(message: str, options: Iterable[str]) -> str:
    """The message with these `options` in place of arguments: `overwrite=True` is `--overwrite`, `part: ` at its begin
    `--part: `, `output=...` and `process_id` also within it `--output ...` and `--process-id`."""
    for option in options:
        name = _OTHER_NAMES.get(option, option.removeprefix("--").replace("-", "_"))
        places = [rf"^{name}(?=[:,])", rf"(?<![\w.'-]){name}=True\b"]
        places += [rf"(?<![\w.'-]){re.escape(name)}(?!\w)"] if "_" in name or "=" in name else []
        message = re.sub("|".join(places), option, message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=(?=[\w.])", f"{option} ", message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=", option, message)
    return message
