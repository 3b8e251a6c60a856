"""Ages of stars from what a file keeps: birth as a scale factor or as a time, age, or its logarithm."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cosmology import age_table
from rubix_like.readers.particles import Snapshot, Table
from rubix_like.validation import require

SOURCES = ("birth_scale_factor", "birth_time", "age", "log_age")
"""Quantities that ages come from, the first that a table has being taken."""


def age_source(snapshot: Snapshot, table: Table) -> str | None:
    """Which column the ages come from: scale factors only with expansion, times only without; None for none."""
    usable = {
        "birth_scale_factor": snapshot.epoch.cosmology is not None,
        "birth_time": snapshot.epoch.cosmology is None,
    }
    return next((name for name in SOURCES if name in table and usable.get(name, True)), None)


def log_ages(snapshot: Snapshot, table: Table) -> Float[ndarray, " particle"] | None:
    """log10(age / yr), NaN for stars whose group has no ages, an age below 1 yr being 0; None without any ages.

    Raises ValueError for births after the snapshot.
    """
    source = age_source(snapshot, table)
    if source is None:
        return None
    place = f"{snapshot.container.name}: {snapshot.field_name('stars', source, '/'.join(snapshot.groups('stars')))}"
    stored = table[source]
    known = np.isfinite(stored)
    result = np.full(stored.shape, np.nan)
    result[known] = stored[known] if source == "log_age" else np.log10(_ages(snapshot, source, stored[known], place))
    return result


def _ages(snapshot: Snapshot, source: str, stored: ndarray, place: str) -> Float[ndarray, " particle"]:
    """Ages in yr, at least 1."""
    if source == "birth_scale_factor":
        cosmology = snapshot.epoch.cosmology
        assert cosmology is not None
        return np.maximum(age_table(cosmology, snapshot.epoch.scale_factor).stellar_age(stored, place), 1.0)
    age = stored if source == "age" else snapshot.now - stored
    slack = 0.0 if source == "age" else 1e-6 * abs(snapshot.now)
    require(age >= -slack, stored, place, "births before the snapshot", "is the Header of another snapshot?")
    return np.maximum(age, 1.0)
