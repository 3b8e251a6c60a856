"""Keys and values that configurations up to version 0.2.0 could have, each with the way to do it now.

`rubix_like.config.messages` asks `refusal` of every setting that is refused. A check that judges a value beyond its own
key, such as that of files' endings, calls `refusal` itself.
"""

from collections.abc import Mapping
from pathlib import Path

REMOVED: Mapping[str, str] = {
    "output.path: .parquet": "write a cube as .h5, .zarr or .fits",
    "simulate.files: parquet": "write hdf5 or zarr",
}
"""A dotted key of a run (`fit.optimiser.learning_rate`), a key with a value (`fit.sampling.method: nested`) or with the
ending of a path (`output.path: .parquet`) -> the remedy: a clause that an error puts behind a semicolon."""


def refusal(key: str, value: object) -> str | None:
    """The sentence that refuses a removed key, or a removed value of it; None where neither was removed."""
    words = [str(value), *([Path(value).suffix.lower()] if isinstance(value, str | Path) else [])]
    entry = next((entry for entry in (key, *(f"{key}: {word}" for word in words)) if entry in REMOVED), None)
    return None if entry is None else f"'{entry}' was removed after version 0.2.0; {REMOVED[entry]}"
