"""Ages of stars as a file has them: by births, lookback times or ages."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.galaxy.limits import require
from rubix_like.physics.cosmology import age_table, find_cosmology
from rubix_like.readers.fields.field_map import Table
from rubix_like.readers.fields.snapshot_particles import Snapshot

BIRTHS = ("birth_scale_factor", "birth_redshift", "birth_time")
"""Births, of which codes use negative numbers as marks of stars of the initial conditions and of winds."""

SOURCES = (*BIRTHS, "lookback_time", "age", "log_age")
"""Quantities that ages come from, the first that a table has being taken."""

LOOKBACK_SLACK: float = 1e6
"""Years by which a lookback time may be shorter than that of the snapshot: rounding in its redshift."""


def age_source(known: Collection[str]) -> str | None:
    """Which of these quantities the ages come from; None for none."""
    return next((name for name in SOURCES if name in known), None)


def log_ages(snapshot: Snapshot, table: Table) -> Float[ndarray, " particle"] | None:
    """log10(age / yr), an age below 1 yr being 0; None without any ages.

    NaN for stars whose group has no ages and where a birth is negative, which is a mark and no number. Raises
    ValueError for births after the snapshot.
    """
    source = age_source(table)
    if source is None:
        return None
    place = f"{snapshot.container.name}: {snapshot.field_name('stars', source, '/'.join(snapshot.groups('stars')))}"
    stored = table[source]
    known = np.isfinite(stored) & ((stored >= 0) | (source not in BIRTHS))
    result = np.full(stored.shape, np.nan)
    result[known] = stored[known] if source == "log_age" else np.log10(_ages(snapshot, source, stored[known], place))
    return result


def _ages(snapshot: Snapshot, source: str, stored: ndarray, place: str) -> Float[ndarray, " particle"]:
    """Ages in yr, at least 1."""
    if source in {"birth_scale_factor", "birth_redshift"}:
        cosmology = snapshot.epoch.cosmology
        assert cosmology is not None
        stored = 1.0 / (1.0 + stored) if source == "birth_redshift" else stored
        return np.maximum(age_table(cosmology, snapshot.epoch.scale_factor).stellar_age(stored, place), 1.0)
    age, slack = stored, 0.0
    if source == "lookback_time":
        since = find_cosmology("Planck15").lookback_time(snapshot.epoch.redshift)  # pyright: ignore[reportAttributeAccessIssue]
        age, slack = stored - float(since.to_value("yr")), LOOKBACK_SLACK
    elif source == "birth_time":
        age, slack = snapshot.now - stored, 1e-6 * abs(snapshot.now)
    require(age >= -slack, stored, place, "births before the snapshot", "is the Header of another snapshot?")
    return np.maximum(age, 1.0)
