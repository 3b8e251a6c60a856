"""Gadget's binary snapshots: what is in the header, and which block holds what of which particle types.

Header and order of the blocks: Springel 2005, "User guide for GADGET-2", sections 6.1 and 6.2; the blocks of runs with
cooling and stars (NE, NH, SFR, AGE, Z) follow the order in which Gadget-3 writes them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

N_TYPES = 6
GAS = (0,)
STARS = (4,)
ALL = tuple(range(N_TYPES))

HEADER_BYTES = 256

_HEADER = (
    ("NumPart_ThisFile", "u4", 6),
    ("MassTable", "f8", 6),
    ("Time", "f8", 1),
    ("Redshift", "f8", 1),
    ("Flag_Sfr", "i4", 1),
    ("Flag_Feedback", "i4", 1),
    ("NumPart_Total", "u4", 6),
    ("Flag_Cooling", "i4", 1),
    ("NumFilesPerSnapshot", "i4", 1),
    ("BoxSize", "f8", 1),
    ("Omega0", "f8", 1),
    ("OmegaLambda", "f8", 1),
    ("HubbleParam", "f8", 1),
    ("Flag_StellarAge", "i4", 1),
    ("Flag_Metals", "i4", 1),
    ("NumPart_Total_HighWord", "u4", 6),
    ("Flag_Entropy_ICs", "i4", 1),
    ("Flag_DoublePrecision", "i4", 1),
)


@dataclass(frozen=True)
class Layout:
    """A block: the name of its dataset in Gadget's HDF5 files, its columns (0: any number), whether its numbers are
    integers, and the sets of particle types that it may hold, the usual one first."""

    dataset: str
    columns: int = 1
    integer: bool = False
    types: tuple[tuple[int, ...], ...] = (GAS,)


LAYOUTS: dict[str, Layout] = {
    "POS": Layout("Coordinates", 3, types=(ALL,)),
    "VEL": Layout("Velocities", 3, types=(ALL,)),
    "ID": Layout("ParticleIDs", integer=True, types=(ALL,)),
    "MASS": Layout("Masses", types=(ALL,)),
    "U": Layout("InternalEnergy"),
    "RHO": Layout("Density"),
    "NE": Layout("ElectronAbundance"),
    "NH": Layout("NeutralHydrogenAbundance"),
    "HSML": Layout("SmoothingLength"),
    "SFR": Layout("StarFormationRate"),
    "AGE": Layout("StellarFormationTime", types=(STARS, (4, 5))),
    "Z": Layout("Metallicity", 0, types=((0, 4), GAS, STARS)),
    "HSMS": Layout("SmoothingLength", types=(STARS,)),
    "iM": Layout("InitialMass", types=(STARS,)),
    "TEMP": Layout("Temperature"),
    "POT": Layout("Potential", types=(ALL,)),
}
"""By the label of format 2, without its padding."""


def parse_header(record: bytes, order: str) -> dict[str, Any]:
    """The header's entries under their names in Gadget's HDF5 files; `order` is "<" or ">"."""
    dtype = np.dtype([(name, order + kind, (count,) if count > 1 else ()) for name, kind, count in _HEADER])
    stored = np.frombuffer(record, dtype=dtype, count=1)[0]
    return {name: np.array(stored[name]) for name, _, _ in _HEADER}


def standard_order(header: dict[str, Any]) -> tuple[str, ...]:
    """The blocks of a file of format 1, which has no labels: the order is fixed, the header says which there are."""
    counts, masses = header["NumPart_ThisFile"], header["MassTable"]
    blocks = ["POS", "VEL", "ID", *(["MASS"] if np.any((counts > 0) & (masses == 0)) else [])]
    if counts[0]:
        blocks += ["U", "RHO", *(["NE", "NH"] if header["Flag_Cooling"] else []), "HSML"]
        blocks += ["SFR"] if header["Flag_Sfr"] else []
    blocks += ["AGE"] if header["Flag_StellarAge"] and counts[4] else []
    blocks += ["Z"] if header["Flag_Metals"] and counts[0] + counts[4] else []
    return tuple(blocks)


@dataclass(frozen=True)
class Fit:
    """How a record holds a block: the types in it, columns and the numbers' type."""

    types: tuple[int, ...]
    columns: int
    dtype: np.dtype


def fit(label: str, length: int, header: dict[str, Any], order: str, width: int) -> Fit | None:
    """How a record of `length` bytes can be the block `label`, None where it cannot.

    Bytes per number follow from the length; where several are possible, `width` (those of POS) goes first.
    """
    layout = LAYOUTS[label]
    kind = "u" if layout.integer else "f"
    for types in layout.types:
        present = tuple(t for t in types if header["NumPart_ThisFile"][t])
        if label == "MASS":
            present = tuple(t for t in present if header["MassTable"][t] == 0)
        count = sum(int(header["NumPart_ThisFile"][t]) for t in present)
        for size in (width, 12 - width):
            columns = layout.columns or (length // (count * size) if count else 0)
            if columns and count and length == count * size * columns:
                return Fit(present, columns, np.dtype(f"{order}{kind}{size}"))
    return None


def expected_sizes(label: str, header: dict[str, Any]) -> str:
    """The bytes that a block may have, in words."""
    layout = LAYOUTS[label]
    present = [t for t in layout.types[0] if label != "MASS" or header["MassTable"][t] == 0]
    count = sum(int(header["NumPart_ThisFile"][t]) for t in present)
    numbers = f"{count} particles of type {', '.join(map(str, present))}"
    sizes = " or ".join(str(count * size * max(layout.columns, 1)) for size in (4, 8))
    return f"{sizes} bytes ({numbers})"
