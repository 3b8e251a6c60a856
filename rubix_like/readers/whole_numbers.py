"""Quantities that a file stores as whole numbers, which may have been rounded."""

from rubix_like.readers.field_map import FAMILIES
from rubix_like.readers.particles import Snapshot


def find_whole_numbers(snapshot: Snapshot) -> list[str]:
    """Datasets of the file's quantities, as `group/dataset`, whose numbers are whole; of each one row is read."""
    container = snapshot.container
    return [
        f"{group}/{name}"
        for family in FAMILIES
        for group in snapshot.groups(family)
        for _, names in snapshot.places(family, group).values()
        for name in names
        if container.read(group, name, 0, 1).dtype.kind in "iu"
    ]
