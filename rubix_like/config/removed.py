"""Keys and values that configurations up to version 0.2.0 could have, each with the way to do it now.

`rubix_like.config.messages` asks `refusal` of every setting that is refused. A check that judges a value beyond its own
key, such as that of files' endings, calls `refusal` itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BY_OTHERS = "run dynesty or nautilus on rl.log_posterior, as docs/own-inference.md shows"

REMOVED: Mapping[str, str] = {
    "output.path: .parquet": "write a cube as .h5, .zarr or .fits",
    "fit.optimiser.learning_rate": "leave it out: lbfgs finds the length of its steps",
    "fit.optimiser.name: adam": "take lbfgs, or optax on rl.log_posterior, as docs/own-inference.md shows",
    "fit.optimiser.name: gauss_newton": "take levenberg_marquardt",
    "fit.sampling.method: mgvi": "take geovi, or nuts",
    "fit.sampling.method: nested": _BY_OTHERS,
    "fit.sampling.nested": f"leave it out: {_BY_OTHERS}",
    "simulate.files: parquet": "write hdf5 or zarr",
}
"""A dotted key of a run (`fit.optimiser.learning_rate`), a key with a value (`fit.sampling.method: nested`) or with the
ending of a path (`output.path: .parquet`) -> the remedy: a clause that an error puts behind a semicolon."""


def refusal(key: str, value: object) -> str | None:
    """The sentence that refuses a removed key, or a removed value of it; None where neither was removed."""
    words = [str(value), *([Path(value).suffix.lower()] if isinstance(value, str | Path) else [])]
    entry = next((entry for entry in (key, *(f"{key}: {word}" for word in words)) if entry in REMOVED), None)
    return None if entry is None else f"'{entry}' was removed after version 0.2.0; {REMOVED[entry]}"


_UNSET: Mapping[str, Any] = {
    "fit.optimiser.learning_rate": 0.05,
    "fit.sampling.nested": {"live": 250, "tolerance": 0.1, "draws": 1000},
}
"""Removed keys with their defaults, which results of version 0.2.0 record though nobody set them."""


def without_unset(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The sections without removed keys that have their defaults."""
    for key, default in _UNSET.items():
        sections = _without(sections, key.split("."), default)
    return dict(sections)


def _without(section: Mapping[str, Any], parts: list[str], default: Any) -> Mapping[str, Any]:
    name, *below = parts
    value = section.get(name)
    if below and isinstance(value, Mapping):
        return {**section, name: _without(value, below, default)}
    if not below and name in section and value == default:
        return {key: kept for key, kept in section.items() if key != name}
    return section
