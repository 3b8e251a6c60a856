"""What a compiled program does between devices, read from its text."""

import re

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def collectives(text):
    """(kind, computation) of every collective of a compiled program; the outermost computation is called ENTRY."""
    found, computation = [], ""
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if header:
            computation = "ENTRY" if header[1] else header[2]
        found += [(kind, computation) for kind in COLLECTIVES if re.search(rf"= .*[ )}}]{kind}(-start)?\(", line)]
    return found
