"""What the packages that read files raise on damaged ones: one list for every reader."""

import csv
import struct
import tokenize
import zipfile
import zlib
from lzma import LZMAError

from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning

DAMAGED: str = "the file is damaged or incomplete: copy or download it again"
"""The end of a message that says what to do."""

UNREADABLE: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    LookupError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
    SystemError,
    SyntaxError,
    UserWarning,
    struct.error,
    csv.Error,
    tokenize.TokenError,
    zlib.error,
    LZMAError,
    zipfile.BadZipFile,
    fits.VerifyError,
    AstropyWarning,
)
"""What h5py, numpy and astropy raise on damaged structure, and the packers below them.

To be caught only around what reads a file. An error of our own, which says more, is a ValueError: where both may come,
`except ValueError: raise` goes before.
"""


def reason_of(error: BaseException) -> str:
    """Why, in one line of at most 300 characters, also of an error without words or with several lines of them."""
    return shortened(" ".join(str(error).split())) or type(error).__name__


def shortened(text: str, most: int = 300) -> str:
    """Text of which the middle is left out where it is longer: a damaged file may put anything into a message."""
    return text if len(text) <= most else f"{text[: most - 50]} ... {text[-40:]}"
