"""Snapshots in three layouts, and recipes of damage to them: plain data that say what is done to a copy of a file."""

import shutil
import struct
from pathlib import Path

import h5py
import numpy as np
from snapshot_files import write_snapshot

N_STARS, N_GAS = 150, 90
HEADER = {"HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 0.25, "Time": 0.8}
BOX = {"TNG": 35000.0, "EAGLE": 35.0}


def write_illustris(path):
    """Contiguous datasets without attributes, as h5py writes them by default."""
    rng = np.random.default_rng(5)
    stars = _particles(rng, N_STARS, 17000.0, 5.0) | {
        "GFM_InitialMass": rng.uniform(2e-5, 4e-5, N_STARS),
        "GFM_Metallicity": rng.uniform(1e-4, 0.04, N_STARS).astype(np.float32),
        "GFM_StellarFormationTime": rng.uniform(0.1, 0.79, N_STARS).astype(np.float32),
        "ParticleIDs": np.arange(N_STARS).astype(np.uint64),
    }
    gas = _particles(rng, N_GAS, 17000.0, 9.0) | {
        "GFM_Metallicity": rng.uniform(1e-4, 0.04, N_GAS).astype(np.float32),
        "Density": rng.uniform(1e-7, 1e-3, N_GAS).astype(">f4"),
        "InternalEnergy": rng.uniform(100, 1e5, N_GAS).astype(np.float32),
        "ElectronAbundance": rng.uniform(0, 1.2, N_GAS),
        "StarFormationRate": rng.uniform(0.1, 1, N_GAS).astype(np.float32),
    }
    header = HEADER | {"BoxSize": BOX["TNG"], "SimulationName": "TNG-test"}
    return write_snapshot(path, {"PartType4": stars, "PartType0": gas}, header)


def write_eagle(path):
    """Compressed chunks with check sums, and attributes with the units."""
    rng = np.random.default_rng(6)
    stars = _particles(rng, N_STARS, 17.0, 0.005) | {
        "InitialMass": rng.uniform(2e-5, 4e-5, N_STARS).astype(np.float32),
        "SmoothedMetallicity": rng.uniform(1e-4, 0.04, N_STARS).astype(np.float32),
        "StellarFormationTime": rng.uniform(0.1, 0.79, N_STARS).astype(np.float32),
        "SmoothingLength": rng.uniform(0.001, 0.002, N_STARS),
    }
    gas = _particles(rng, N_GAS, 17.0, 0.009) | {
        "SmoothedMetallicity": rng.uniform(1e-4, 0.04, N_GAS).astype(np.float32),
        "Density": rng.uniform(1, 1e4, N_GAS).astype(np.float32),
        "Temperature": rng.uniform(1e4, 1e6, N_GAS).astype(np.float32),
        "StarFormationRate": rng.uniform(0.1, 1, N_GAS).astype(np.float32),
        "SmoothedElementAbundance/Oxygen": rng.uniform(0.001, 0.01, N_GAS).astype(np.float32),
    }
    powers = {"Coordinates": (1, -1), "SmoothingLength": (1, -1), "Density": (-3, 2), "Velocity": (0.5, 0)}
    packing = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    with h5py.File(path, "w") as file:
        header = HEADER | {"BoxSize": BOX["EAGLE"], "RunLabel": b"EAGLE test", "ExpansionFactor": HEADER["Time"]}
        file.create_group("Header").attrs.update(header)
        for group, table in (("PartType4", stars), ("PartType0", gas)):
            for key, values in table.items():
                name = {"Velocities": "Velocity", "Masses": "Mass"}.get(key, key)
                chunks = (40, *values.shape[1:])
                made = file.create_dataset(f"{group}/{name}", data=values, chunks=chunks, **packing)
                a, h = powers.get(name, (0, -1 if "Mass" in name else 0))
                made.attrs.update({"aexp-scale-exponent": float(a), "h-scale-exponent": float(h)})
    return path


def write_gadget(path):
    """Gadget's binary format 1: gas, and stars of the disk, in four records after the header."""
    rng = np.random.default_rng(7)
    n = N_GAS + N_STARS
    counts = (N_GAS, 0, N_STARS, 0, 0, 0)
    head = struct.pack("<6I6d2d2i6I2i4d", *counts, *[0.0] * 6, 0.0, 0.0, 0, 0, *counts, 0, 1, 0.0, 0.0, 0.0, 1.0)
    positions, velocities = rng.normal(size=(n, 3)) * 5, rng.normal(size=(n, 3)) * 80
    masses, energy = rng.uniform(1e-5, 2e-5, n), rng.uniform(100, 1e5, N_GAS)
    numbers = [values.astype("<f4").tobytes() for values in (positions, velocities, masses, energy)]
    records = [head.ljust(256, b"\0"), *numbers[:2], np.arange(n, dtype="<u4").tobytes(), *numbers[2:]]
    path.write_bytes(b"".join(struct.pack("<I", len(data)) + data + struct.pack("<I", len(data)) for data in records))
    return path


def _particles(rng, n, center, size):
    return {
        "Coordinates": center + rng.normal(size=(n, 3)) * size,
        "Velocities": (rng.normal(size=(n, 3)) * 80).astype(np.float32),
        "Masses": rng.uniform(1e-5, 2e-5, n).astype(np.float32),
    }


def damaged_copy(recipe, folder):
    """A damaged copy of `recipe["source"]` in `folder`."""
    source = Path(recipe["source"])
    path = folder / f"damaged{source.suffix}"
    shutil.copyfile(source, path)
    path.chmod(0o600)
    if "edit" in recipe:
        with h5py.File(path, "r+") as file:
            EDITS[recipe["edit"]](file, recipe["place"])
        return path
    content = bytearray(path.read_bytes())
    for offset, mask in recipe.get("flips", ()):
        content[offset] ^= mask
    if "zero_from" in recipe:
        content[recipe["zero_from"] :] = bytes(len(content) - recipe["zero_from"])
    path.write_bytes(content[: recipe.get("length", len(content))])
    return path


def _replaced(file, place, values):
    attributes = dict(file[place].attrs)
    del file[place]
    file[place] = values
    file[place].attrs.update(attributes)


def _with(value):
    def edit(file, place):
        values = file[place][()].astype(float)
        values.reshape(-1)[values.size // 2] = value
        _replaced(file, place, values)

    return edit


def _drop(file, place):
    del file[place]


EDITS = {
    "dropped": _drop,
    "nan": _with(np.nan),
    "infinite": _with(np.inf),
    "huge": _with(1e300),
    "zero length": lambda file, place: _replaced(file, place, file[place][:0]),
    "swapped shape": lambda file, place: _replaced(file, place, file[place][()].T[..., None]),
    "half": lambda file, place: _replaced(file, place, file[place][: len(file[place]) // 2]),
    "one number": lambda file, place: _replaced(file, place, 1.0),
    "text": lambda file, place: _replaced(file, place, np.full(len(file[place]), b"1.5")),
    "complex": lambda file, place: _replaced(file, place, file[place][()] * (1 + 1j)),
}


def used_datasets(path, snapshot):
    """Datasets that are read, with the first row of their group in the family's table."""
    found = {}
    for family in ("stars", "gas"):
        first = 0
        for group, n_rows in snapshot.groups(family).items():
            for _, datasets in snapshot.places(family, group).values():
                found.update({f"{group}/{name}": (family, first) for name in datasets})
            first += n_rows
    return found


def raw_extents(path):
    """By dataset: its stretches of raw data (first byte, bytes), and whether they are packed."""
    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset) or item.size == 0:
            return
        if item.chunks is None:
            found[name] = ([(item.id.get_offset(), item.id.get_storage_size())], False)
            return
        chunks = [item.id.get_chunk_info(i) for i in range(item.id.get_num_chunks())]
        found[name] = ([(chunk.byte_offset, chunk.size) for chunk in chunks], True)

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def structure(path, used):
    """Bytes that are no raw data: (those of names and attributes, those of what is read, the others), as offsets."""
    content = path.read_bytes()
    kind = np.zeros(len(content), dtype=np.int8)
    with h5py.File(path) as file:
        headers = [h5py.h5o.get_info(file[place].id).addr for place in ("/", *file, *used)]
    for address in headers:
        kind[address : address + 256] = 1
    kind[:96] = 1
    for name, length in _names(path):
        start = content.find(name)
        while start >= 0:
            kind[start - 8 : start + len(name) + length] = 2
            start = content.find(name, start + 1)
    for extents, _ in raw_extents(path).values():
        for offset, size in extents:
            kind[offset : offset + size] = -1
    return np.flatnonzero(kind == 2), np.flatnonzero(kind == 1), np.flatnonzero(kind == 0)


def _names(path):
    """Names in the file, with the bytes behind them that hold an attribute's type, shape and value."""
    found = set()

    def visit(name, item):
        found.add((name.rpartition("/")[2].encode() + b"\0", 0))
        for attribute in item.attrs:
            size = np.asarray(item.attrs[attribute]).nbytes
            found.add((attribute.encode() + b"\0", 72 + size))

    with h5py.File(path) as file:
        file.visititems(visit)
    return sorted(found)


def recipes(path, snapshot, n_flips, n_raw, n_edits, seed):
    """Recipes for one HDF5 file: flips in structure, in names and attributes, in raw data, edits, truncations."""
    rng = np.random.default_rng(seed)
    used = used_datasets(path, snapshot)
    named, near, far = structure(path, used)
    made = []
    for i in range(n_flips):
        pool, expect = [(near, "refused"), (near, "refused"), (far, "refused"), (named, "anything")][i % 4]
        flips = [[int(rng.choice(pool)), 1 << int(rng.integers(8)) if i % 2 else int(rng.integers(1, 256))]]
        made.append({"expect": expect, "flips": flips})
    made += [_raw_flip(path, used, rng) for _ in range(n_raw)]
    places = sorted(used)
    for i in range(n_edits):
        edit = list(EDITS)[i % len(EDITS)]
        expect = "without" if edit == "dropped" else "changed shape" if edit == "swapped shape" else "refused"
        made.append({"expect": expect, "edit": edit, "place": places[(7 * i) % len(places)]})
    size = path.stat().st_size
    lengths = [0, 1, 7, 8, 95, 96, 500, 2048, size // 2, size - 1000, size - 1]
    made += [{"expect": "refused", "length": length} for length in lengths[:: 1 if n_flips > 20 else 3]]
    made += [{"expect": "anything", "zero_from": size // 3}, {"expect": "anything", "zero_from": size - 3000}]
    return [_named(recipe, path, i) for i, recipe in enumerate(made)]


def gadget_recipes(path, n_flips, n_raw, seed):
    """Recipes for a binary snapshot of format 1: flips in markers, counts, the rest of the header, and in raw data."""
    rng = np.random.default_rng(seed)
    content = path.read_bytes()
    records, position = [], 0
    while position < len(content):
        length = struct.unpack_from("<I", content, position)[0]
        records.append((position + 4, length))
        position += length + 8
    markers = [start + i for first, length in records for start in (first - 4, first + length) for i in range(4)]
    counts = struct.unpack_from("<6I", content, 4)
    pools = [(markers, "refused"), (range(4, 28), "refused"), (range(28, 260), "anything")]
    made = []
    for i in range(n_flips):
        pool, expect = pools[i % 3]
        made.append({"expect": expect, "flips": [[int(rng.choice(pool)), int(rng.integers(1, 256))]]})
    for i in range(n_raw):
        first = records[1 + i % 2][0] + 12 * counts[0]  # positions or velocities behind those of the gas
        byte = int(rng.integers(12 * sum(counts[2:])))
        flips = [[first + 12 * counts[1] + byte, int(rng.integers(1, 256))]]
        made.append({"expect": "one row", "family": "stars", "row": byte // 12, "flips": flips})
    lengths = [0, 1, 4, 100, 260, 264, 268, 2000, len(content) // 2, len(content) - 5, len(content) - 1]
    made += [{"expect": "refused", "length": length} for length in lengths[:: 1 if n_flips > 20 else 3]]
    made.append({"expect": "anything", "zero_from": len(content) // 2})
    return [_named(recipe, path, i) for i, recipe in enumerate(made)]


def _named(recipe, path, i):
    what = {key: value for key, value in recipe.items() if key != "expect"}
    return {
        "name": f"{path.name} {i} {what}",
        "source": str(path),
        "auto": i % 20 == 3,
        "command": i % 20 == 1 and recipe["expect"] == "refused",
    } | recipe


def _raw_flip(path, used, rng):
    """One flipped byte in raw data: in a packed chunk, or in a row that is told."""
    extents = raw_extents(path)
    place = sorted(used)[rng.integers(len(used))]
    stretches, packed = extents[place]
    offset, size = stretches[rng.integers(len(stretches))]
    byte = int(rng.integers(size))
    flip = {"flips": [[offset + byte, int(rng.integers(1, 256))]]}
    if packed:
        return {"expect": "refused"} | flip
    with h5py.File(path) as file:
        row = byte // (size // len(file[place]))
    family, first = used[place]
    return {"expect": "one row", "family": family, "row": first + row} | flip
