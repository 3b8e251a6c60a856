"""Tables in Parquet that we write and read: columns of numbers and lists, and metadata as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rubix_like.runtime.files.packed_files import check_ratio
from rubix_like.runtime.optional_packages import import_optional

PARQUET_SUFFIX: str = ".parquet"
"""End of the name of such a file."""

PARQUET_HEAD: bytes = b"PAR1"
"""First bytes of such a file."""


def import_parquet(purpose: str) -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet; raises ConfigError, with the remedy, where they are not installed."""
    return import_optional("pyarrow", purpose), import_optional("pyarrow.parquet", purpose)


@contextmanager
def opened_parquet(path: Path, purpose: str) -> Iterator[Any]:
    """An open `pyarrow.parquet.ParquetFile` whose pages are checked as they are read; ValueError where it is packed
    into much less than it would become."""
    _, parquet = import_parquet(purpose)
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        groups = range(file.metadata.num_row_groups)
        check_ratio(path, "its columns", sum(file.metadata.row_group(number).total_byte_size for number in groups))
        yield file


def is_parquet(path: Path) -> bool:
    """Whether a file begins as one in Parquet does."""
    with path.open("rb") as file:
        return file.read(len(PARQUET_HEAD)) == PARQUET_HEAD


def table_metadata(schema: Any) -> dict[str, Any]:
    """What the metadata of a table's schema say; raises ValueError where they are not JSON, as ours are."""
    own = {name.decode(): text for name, text in (schema.metadata or {}).items()}
    return {name: json.loads(text) for name, text in own.items() if not name.startswith(("ARROW", "pandas"))}
