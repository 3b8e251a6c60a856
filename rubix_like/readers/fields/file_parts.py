"""Check that several files are parts of one snapshot."""

import numpy as np

from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.joined import JoinedContainer, _row_count
from rubix_like.readers.fields.conversion import Conversion
from rubix_like.readers.fields.epoch import read_epoch
from rubix_like.readers.fields.field_map import FAMILIES, FieldMap
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.runtime.words import counted


def check_parts(container: AbstractContainer, field_map: FieldMap) -> None:
    """Raise ValueError where files of one snapshot differ in epoch, cosmology, box or a dataset's unit."""
    if not isinstance(container, JoinedContainer):
        return
    first = container.parts[0]
    epoch = read_epoch(first, field_map)
    stated: dict[str, Conversion] = {}
    for part in container.parts:
        own = read_epoch(part, field_map)
        for what in ("scale_factor", "h", "time", "box_size", "cosmology_text", "simulation"):
            if getattr(own, what) != getattr(epoch, what):
                raise ValueError(
                    f"{part.name}: expected the {what} of {first.name} ({getattr(epoch, what)}), got "
                    f"{getattr(own, what)}; they are no parts of one snapshot"
                )
        _check_units(Snapshot(part, field_map, epoch), stated)


def _check_units(part: Snapshot, stated: dict[str, Conversion]) -> None:
    """Compare the units of a part with those `stated` by parts before it, to which those of other places are added."""
    places = [
        (f, group, place) for f in FAMILIES for group in part.groups(f) for place in part.places(f, group).items()
    ]
    for family, group, (quantity, (settings, (name, *_))) in places:
        got = part.conversion(quantity, settings, group, name)
        expected = stated.setdefault(f"{family} {group} {quantity}", got)
        if expected != got:
            raise ValueError(
                f"{part.container.name}: {group}/{name}: expected the unit and powers that files before it state "
                f"({expected.unit} a^{expected.a:g} h^{expected.h:g}), got {got.unit} a^{got.a:g} h^{got.h:g}"
            )


def count_notes(container: AbstractContainer) -> tuple[str, ...]:
    """A note for every particle type whose total in the Header differs from the number in all files together."""
    low, high = (
        np.asarray(container.attribute("Header", name)).reshape(-1)
        for name in ("NumPart_Total", "NumPart_Total_HighWord")
    )
    if low.dtype.kind not in "fiu":
        return ()
    notes = []
    for group in container.groups():
        kind = int(group[-1]) if group.startswith("PartType") and group[-1].isdigit() else low.size
        if kind >= low.size or not np.isfinite(low[kind]):
            continue
        upper = int(high[kind]) << 32 if high.dtype.kind in "iu" and kind < high.size else 0
        stated, found = int(low[kind]) + upper, _row_count(container, group)
        if stated != found:
            notes.append(f"{group} has {counted(found, 'row')} in all files together, but the Header tells of {stated}")
    return tuple(notes)
