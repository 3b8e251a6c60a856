"""What is done to a whole file or folder: to its bytes, or to the structure of HDF5, FITS, YAML, CSV, npz and Zarr."""

import io
import os
import re
import shutil
import zipfile

import h5py
import numpy as np
from astropy.io import fits

WORDS = [
    "nan", "inf", "-inf", "1e400", "-1", "0", "1e-300", "9" * 400, "2147483648", "-9223372036854775809", "1e308", "''",
    "null", "~", "true", "[]", "{}", "[1, 2, 3]", "{a: 1}", "text", "5 parsec", "5 arcsec arcsec", "1 / 0", "deg", "-",
    "!!int ''", "!!python/object/apply:os.system [id]", "&a [*a]", "*a", "../../../../etc/passwd", "/dev/zero", "/",
    "\x00", "\ud7ff", "a" * 5000, "[" * 3000, "1e5 km/s", "12:30", "0x10", "1_000", ".5.5", "#", "%", "@x", "|", ">",
    "- - - - 1", "{? [a]: 1}", "1e-5 deg", "361 deg", "1e9 arcsec", "1e6", "100000000", "3.5", "(1, 2)",
]  # fmt: skip
"""In place of a value."""

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(9)
)


def flip(content, rng):
    for _ in range(rng.integers(1, 9)):
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    return content


def scramble_the_beginning(content, rng):
    for _ in range(rng.integers(1, 20)):
        content[rng.integers(min(len(content), 4000))] = rng.integers(256)
    return content


def cut_short(content, rng):
    return content[: rng.integers(len(content))]


def blank(content, rng):
    size = int(rng.choice([8, 64, 512, 4096]))
    start = rng.integers(len(content))
    content[start : start + size] = bytes(len(content[start : start + size]))
    return content


def fill(content, rng):
    start = rng.integers(len(content))
    content[start : start + 64] = b"\xff" * len(content[start : start + 64])
    return content


def swap_blocks(content, rng):
    size = int(rng.choice([16, 512, 2880]))
    one, other = sorted(rng.integers(max(len(content) - size, 1), size=2))
    first, second = content[one : one + size], content[other : other + size]
    content[one : one + size], content[other : other + size] = second[: len(first)], first[: len(second)]
    return content


def repeat_block(content, rng):
    start, size = rng.integers(len(content)), int(rng.choice([1, 80, 2880]))
    return content[: start + size] + content[start:]


BYTES = (flip, flip, scramble_the_beginning, cut_short, blank, blank, fill, swap_blocks, repeat_block)


def change_bytes(path, rng):
    change = BYTES[rng.integers(len(BYTES))]
    path.write_bytes(change(bytearray(path.read_bytes()), rng))
    return change.__name__


def change_place(path, rng):
    """Something else in place of the file: what cannot be read, or never ends."""
    path.unlink()
    kind = ["gone", "folder", "FIFO", "endless", "itself", "empty", "huge", "other"][rng.integers(8)]
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind in {"endless", "itself", "other"}:
        path.symlink_to({"endless": "/dev/zero", "itself": path.name, "other": "/etc/hostname"}[kind])
    elif kind != "gone":
        path.touch()
        os.truncate(path, 0 if kind == "empty" else 1 << 40)
    return kind


def change_line(path, rng):
    """One value, or one line, of a text."""
    lines = path.read_text().splitlines()
    number, word = int(rng.integers(len(lines))), WORDS[rng.integers(len(WORDS))]
    kinds = ["value"] * 4 + ["key", "twice", "dropped", "bomb", "indent", "inserted"]
    kind = kinds[rng.integers(len(kinds))]
    line = lines[number]
    if kind == "value":
        split = "," if "," in line and path.suffix == ".csv" else ":"
        parts = line.split(split)
        place = int(rng.integers(len(parts))) if split == "," else len(parts) - 1
        parts[place] = word if split == "," else f" {word}"
        lines[number] = split.join(parts)
    elif kind == "key":
        lines[number] = word + line[1:]
    elif kind == "bomb":
        lines.append(BOMB)
    elif kind == "indent":
        lines[number] = "   " + line
    else:
        lines[number : number + 1] = {"twice": [line, line], "dropped": [], "inserted": [line, word]}[kind]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return f"{kind} in line {number + 1}: {word[:30]!r}"


def change_number(path, rng):
    """One number of a text becomes another one."""
    text = path.read_text()
    numbers = list(re.finditer(r"(?<![\w.])\d+(\.\d+)?", text))
    number = numbers[rng.integers(len(numbers))]
    value = float(number.group())
    words = [0, -value, value * 1e6, value * 1e-6, value * 1.1, value + 1, value / 3, 1e30, -1e-30, "1e400", "nan"]
    word = words[rng.integers(len(words))]
    word = word if isinstance(word, str) else f"{word:.10g}"
    path.write_text(text[: number.start()] + word + text[number.end() :])
    line = text.count("\n", 0, number.start()) + 1
    return f"{number.group()} -> {word} in line {line}"


CARDS = [
    "0", "-1", "1", "2", "3", "8", "-32", "-64", "7", "99", "1000000000", "99999999999999999999", "1E400", "NaN",
    "T", "F", "'text'", "'", "''", "", "1.5", "'1PJ(9)'", "'BINTABLE'", "'IMAGE'", "-1E-300", "(1,2)", "'erg'",
    "'9E'", "'DATA'", "2147483647",
]  # fmt: skip
"""In place of a card's value."""


def change_card(path, rng):
    """One card of a FITS header."""
    packed = path.suffix == ".gz"
    if packed:
        return change_bytes(path, rng)
    content = bytearray(path.read_bytes())
    cards = [place for place in range(0, len(content), 80) if content[place + 8 : place + 10] == b"= "]
    place = cards[rng.integers(len(cards))]
    value = CARDS[rng.integers(len(CARDS))]
    key = content[place : place + 8]
    if rng.random() < 0.15:
        key = bytearray(b"TTYPE0  " if rng.random() < 0.5 else b"NAXIS9  ")
    content[place : place + 80] = (bytes(key) + b"= " + value.rjust(20).encode()).ljust(80)[:80]
    path.write_bytes(content)
    return f"{bytes(key).decode().strip()} = {value}"


STRUCTURE = ("SIMPLE", "XTENSION", "BITPIX", "NAXIS", "PCOUNT", "GCOUNT", "TFIELDS")
"""Cards that astropy writes as the data are, or never comes to an end with: `change_card` changes them."""


def change_hdu(path, rng):
    """One HDU of a FITS file, its numbers, cards or place, with the check sums that then are right."""
    with fits.open(path, memmap=False) as file:
        hdus = fits.HDUList([hdu.copy() for hdu in file])
        number = rng.integers(len(hdus))
        hdu, kind = (
            hdus[number],
            ["values", "values", "values", "card", "card", "gone", "twice", "name"][rng.integers(8)],
        )
        if kind == "gone":
            hdus.pop(number)
        elif kind == "twice":
            hdus.append(fits.ImageHDU(hdu.data, hdu.header) if number == 0 else hdu.copy())
        elif kind == "name":
            hdu.name = ("DATA", "FLUX", "STAT", "IVAR", "MASK", "WAVE", "COVAR", "X")[rng.integers(8)]
        elif kind == "card" or hdu.data is None:
            keys = [own for own in hdu.header if not own.startswith(STRUCTURE)]
            key = keys[rng.integers(len(keys))]
            hdu.header[key] = card = (0, -1, 1, 2.5, 1e300, -1e-300, 10**9, "text", "", True)[rng.integers(10)]
            kind = f"{key} = {card!r}"
        elif isinstance(hdu, fits.BinTableHDU):
            name = hdu.columns.names[rng.integers(len(hdu.columns))]
            kind, hdu.data[name][...] = _other_numbers(hdu.data[name], rng, shape=False)
            kind = f"{name}, {kind}"
        else:
            kind, hdu.data = _other_numbers(hdu.data, rng)
        hdus.writeto(path, overwrite=True, output_verify="ignore", checksum=bool(rng.random() < 0.9))
    return f"{number}: {kind}"


def _other_numbers(values, rng, *, shape=True):
    """Other numbers, of the same shape where `shape` is False, and their kind in words."""
    numbers = np.asarray(values, dtype=float)
    changes = {
        "a nan": lambda: _spoilt(values, np.nan),
        "all nan": lambda: np.full(values.shape, np.nan),
        "an inf": lambda: _spoilt(values, np.inf),
        "huge": lambda: _spoilt(values, 1e30),
        "negative": lambda: -np.abs(numbers),
        "zeros": lambda: np.zeros(values.shape),
        "times 1e30": lambda: numbers * 1e30,
        "reversed": numbers[::-1].copy,
    }
    shapes = {
        "turned": numbers.T.copy,
        "half": lambda: numbers[: max(len(values) // 2, 1)],
        "more axes": lambda: numbers[None],
        "fewer axes": lambda: numbers[0] if numbers.ndim > 1 else numbers[:1],
        "bytes": lambda: np.nan_to_num(numbers).astype(np.uint8),
    }
    changes |= shapes if shape else {}
    name = list(changes)[rng.integers(len(changes))]
    return name, changes[name]()


def change_inside(path, rng):
    """One file of a folder: gone, another in its place, or changed as its ending tells."""
    files = sorted(own for own in path.rglob("*") if own.is_file())
    chosen = files[rng.integers(len(files))]
    name, kind = chosen.relative_to(path), rng.random()
    if kind < 0.15:
        chosen.unlink()
        return f"{name} gone"
    if kind < 0.25:
        return f"{name}: {change_place(chosen, rng)}"
    if kind < 0.3:
        shutil.rmtree(chosen.parent)
        return f"{chosen.parent.name} gone"
    by_suffix = {".json": (change_number, change_number, change_line), ".h5": (change_hdf5, change_hdf5, change_bytes)}
    changes = by_suffix.get(chosen.suffix, (change_bytes,))
    return f"{name}: {changes[rng.integers(len(changes))](chosen, rng)}"


def change_hdf5(path, rng):
    """One dataset, attribute or group of an HDF5 file."""
    with h5py.File(path, "r+") as file:
        places: list[str] = []
        file.visit(places.append)
        place = places[rng.integers(len(places))]
        changes = [_other_values] * 6 + [_other_layout] * 3 + [_other_link] * 2 + [_other_attribute] * 3
        return f"{place}: {changes[rng.integers(len(changes))](file, place, rng, path)}"


def _other_values(file, place, rng, path):
    if not isinstance(file[place], h5py.Dataset):
        return _other_attribute(file, place, rng, path)
    dataset = file[place]
    attributes, values = dict(dataset.attrs), np.asarray(dataset[()])
    changes = {
        "nan": lambda: _spoilt(values, np.nan),
        "inf": lambda: _spoilt(values, np.inf),
        "huge": lambda: _spoilt(values, 1e300),
        "negative": lambda: -np.abs(_numbers(values)),
        "zeros": lambda: np.zeros_like(_numbers(values)),
        "text": lambda: np.full(values.shape, b"1.5"),
        "complex": lambda: _numbers(values) * (1 + 1j),
        "integers": lambda: _numbers(values).astype(np.int8),
        "half": lambda: values[: len(values) // 2] if values.ndim else np.zeros(3),
        "one number": lambda: 1.0,
        "more axes": lambda: values[..., None],
        "turned": lambda: values.T[None],
        "none": lambda: h5py.Empty("f8"),
        "no rows": lambda: values[:0] if values.ndim else np.zeros(0),
        "structured": lambda: np.zeros(values.shape, [("a", "f4"), ("b", "S3")]),
        "switches": lambda: np.zeros(values.shape, bool),
        "not UTF-8": lambda: np.bytes_(b"\xff\xfe"),
        "words": lambda: np.bytes_(WORDS[rng.integers(len(WORDS))].replace("\0", "").encode() or b"x"),
        "times a million": lambda: _numbers(values) * 1e6,
    }
    name = list(changes)[rng.integers(len(changes))]
    with np.errstate(all="ignore"):
        new = changes[name]()
    del file[place]
    file[place] = new
    for key, value in attributes.items():
        if key not in {"DIMENSION_LABELS", "DIMENSION_LIST"}:
            file[place].attrs[key] = value
    return name


def _numbers(values):
    return values.astype(float) if values.dtype.kind in "fiub" else np.zeros(values.shape)


def _spoilt(values, value):
    new = np.atleast_1d(_numbers(values)).copy()
    if new.size:
        new.reshape(-1)[new.size // 2] = value
    return new.reshape(values.shape)


def _other_layout(file, place, rng, path):
    dataset = file[place]
    shape = (dataset.shape or (4,)) if isinstance(dataset, h5py.Dataset) else (4,)
    kind = ["own source", "external", "never written", "huge", "circle", "other file", "chunks"][rng.integers(7)]
    del file[place]
    if kind == "external":
        file.create_dataset(place, shape, "f8", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])
    elif kind == "never written":
        file.create_dataset(place, shape, "f8")
    elif kind == "huge":
        file.create_dataset(place, (1 << 40,), "f8", chunks=(1 << 20,))
    elif kind == "chunks":
        file.create_dataset(place, shape, "f8", chunks=tuple(max(n, 1) for n in shape) or None, compression=1)
    else:
        names = {"own source": [place], "circle": ["between"], "other file": ["x"]}[kind]
        source = path.name if kind != "other file" else "/etc/../etc/absent.hdf5"
        layout = h5py.VirtualLayout(shape or (1,), "f8")
        layout[...] = h5py.VirtualSource(source if rng.random() < 0.5 else ".", names[0], shape or (1,))
        file.create_virtual_dataset(place, layout)
        if kind == "circle":
            back = h5py.VirtualLayout(shape or (1,), "f8")
            back[...] = h5py.VirtualSource(".", place, shape or (1,))
            file.create_virtual_dataset("between", back)
    return kind


def _other_link(file, place, rng, path):
    del file[place]
    kind = ["gone", "soft", "round", "elsewhere", "group", "up"][rng.integers(6)]
    if kind == "group":
        file.create_group(place)
    elif kind == "up":
        file[place] = file["/"]
    elif kind != "gone":
        links = {"soft": h5py.SoftLink("/absent"), "round": h5py.SoftLink(f"/{place}")}
        file[place] = links.get(kind, h5py.ExternalLink("/etc/hostname", "/x"))
    return kind


def _other_attribute(file, place, rng, path):
    holders = [own for own in (file[place], file) if len(own.attrs)]
    if not holders:
        return _other_link(file, place, rng, path)
    holder = holders[rng.integers(len(holders))]
    name = list(holder.attrs)[rng.integers(len(holder.attrs))]
    values = [np.nan, np.inf, -1.0, 0, 1e300, "text", "", b"\xff\xfe", [1.0, 2.0], h5py.Empty("f4"), 2**63 - 1, 1 + 1j]
    value = values[rng.integers(len(values))]
    del holder.attrs[name]
    if rng.random() < 0.8:
        holder.attrs[name] = value
        return f"@{name} = {value!r}"
    return f"@{name} gone"


def change_npz(path, rng):
    """One array of an npz file, or the one of an npy file."""
    values = [
        np.zeros(0),
        np.array(1.5),
        np.full((2, 2), np.nan),
        np.array("text"),
        np.zeros((3, 1)),
        np.array([2**40]),
    ]
    new = values[rng.integers(len(values))]
    if path.suffix == ".npy":
        if rng.random() < 0.5:
            return change_bytes(path, rng)
        np.save(path, new)
        return f"{new!r}"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = list(arrays)[rng.integers(len(arrays))]
    kind = ["gone", "other", "other", "objects", "bomb"][rng.integers(5)]
    arrays.pop(name)
    if kind == "other":
        arrays[name] = new
    elif kind == "objects":
        arrays[name] = np.array([{1: 2}], dtype=object)
    elif kind == "bomb":
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(1 << 24))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.npy", buffer.getvalue())
        return f"{name}: {kind}"
    np.savez(path, **arrays)
    return f"{name}: {kind}"
