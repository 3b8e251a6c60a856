"""Exceptions that the packages which read files raise on damaged ones: one list for every reader."""

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

To be caught only around what reads a file. AttributeError and AssertionError, by which bugs of ours are known, are not
among them: where astropy raises one on a damaged header, it is added there. An error of ours, which says more, is a
ValueError: where both may come, `except ValueError: raise` goes before.
"""
