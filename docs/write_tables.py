"""Write the tables of the pages that follow from the settings: `python docs/write_tables.py`, in the root of the clone.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; a test fails where one is not up to date.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rubix_like.config.parameters import Declaration
from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.inference.posterior.free_parameters import known_parameters

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n\n).*?(\n<!-- end of table -->)", re.S)

_SIGNS = {"gt": ">", "above": ">", "ge": "≥", "lt": "<", "le": "≤"}


def parameter_table() -> str:
    """Every parameter that can be free."""
    rows = [(f"`{own.name}`", own.unit, _limits(own), own.meaning) for own in known_parameters().values()]
    return _markdown(("parameter", "unit", "limits", "meaning"), rows)


def sampling_table() -> str:
    """The keys of `fit.sampling` and of its sections, with their defaults."""
    own = [("", SamplingSettings), *((f"{name}.", kind) for name, kind in SamplingSettings.sections().items())]
    fields = [(prefix + key, field) for prefix, kind in own for key, field in kind.model_fields.items()]
    rows = [
        (
            f"`{key}`",
            "null" if field.default is None else str(field.default),
            " ".join((field.description or "").split()),
        )
        for key, field in fields
    ]
    return _markdown(("key", "default", "meaning"), rows)


TABLES: Mapping[str, Callable[[], str]] = {"parameters": parameter_table, "sampling": sampling_table}


def with_tables(text: str) -> str:
    """A page with its tables as they should be."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def _limits(declared: Declaration) -> str:
    marks = declared.form.__metadata__
    found = [(sign, getattr(own, word, None)) for own in marks for word, sign in _SIGNS.items()]
    return ", ".join(f"{sign} {limit:.6g}" for sign, limit in found if limit is not None)


def _markdown(title: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    title = tuple(title)
    lines = [title, ("---",) * len(title), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for page in sorted(Path("docs").glob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
