"""A file as HDF5 reads it, whose heaps of texts are looked at first: the library never leaves a damaged one."""

import io
import struct
from pathlib import Path
from typing import Any

from rubix_like.runtime.files.damaged_files import DAMAGED

_SIGNATURE = b"GCOL"
_HEAD = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")


class GuardedFile(io.RawIOBase):
    """The bytes of a file for h5py's driver of Python objects; `fault`: why a read was refused, empty before.

    A global heap (HDF5 File Format Specification, III.E) is a chain of objects, each with its own length. The
    library follows it while it is inside, so an object of length 0, or one whose length overflows, never ends.
    """

    def __init__(self, path: Path) -> None:
        self.fault = ""
        self._file = path.open("rb")

    def readable(self) -> bool:
        """True: the heap reads like a file."""
        return True

    def seekable(self) -> bool:
        """True: the heap can be sought like a file."""
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte, as a file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The present byte, as of a file."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file; may come twice."""
        self._file.close()

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes; raises OSError where a heap among them never ends."""
        start = self._file.tell()
        count = self._file.readinto(buffer)
        content = bytes(buffer[:count])
        place = content.find(_SIGNATURE)
        while place >= 0:
            self._check_heap(start + place)
            place = content.find(_SIGNATURE, place + 1)
        self._file.seek(start + count)
        return count

    def _check_heap(self, start: int) -> None:
        head = self._bytes(start, _HEAD.size)
        if len(head) < _HEAD.size:
            return
        _, version, size = _HEAD.unpack(head)
        place = _HEAD.size
        while version == 1 and place + _OBJECT.size <= size:
            number = self._bytes(start + place, _OBJECT.size)
            if len(number) < _OBJECT.size:
                return  # beyond the end of the file, which the library sees
            index, _, length = _OBJECT.unpack(number)
            taken = length if index == 0 else _OBJECT.size + -(-length // 8) * 8
            if not 0 < taken <= size:
                self.fault = f"its heap of texts at byte {start} has an object of impossible length {length}; {DAMAGED}"
                raise OSError(self.fault)
            place += taken

    def _bytes(self, start: int, count: int) -> bytes:
        self._file.seek(start)
        return self._file.read(count)
