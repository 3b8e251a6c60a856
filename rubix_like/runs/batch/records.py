"""What is known of every entry of a catalogue: one small file each, beside the cubes."""

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import output_bytes, replacing
from rubix_like.runtime.files.writers import RECORDS_FOLDER

Status = Literal["started", "done", "failed"]


@dataclass(frozen=True)
class Record:
    """How far an entry is: `files` are its files with their sizes in bytes, `measures` numbers for the summary,
    `worker` says which process tried, and when."""

    status: Status
    made_from: dict[str, Any]
    worker: str
    files: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    measures: dict[str, float | int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    traceback: str = ""


class Records:
    """The records of a folder, `records/NAME.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / RECORDS_FOLDER

    def create(self) -> None:
        """Make the folders; raises OSError with the remedy where they cannot be."""
        for folder in (self.folder, self.place):
            try:
                folder.mkdir(exist_ok=True)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"cannot write to {folder}: the folder {folder.parent} does not exist; create it (mkdir -p "
                    f"{folder.parent}) or choose another (output=...)"
                ) from error
            except FileExistsError as error:
                raise NotADirectoryError(
                    f"cannot write to {folder}: it is a file, and a catalogue needs a folder; choose another "
                    f"(output=...)"
                ) from error

    def path(self, name: str) -> Path:
        """Where the record of an entry is."""
        return self.place / f"{name}.json"

    def read(self, name: str) -> Record | None:
        """The record of an entry; None where there is none. Raises ConfigError for a file that is none."""
        path = self.path(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return Record(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{path}: expected a record of a catalogue, but it cannot be read ({error}); remove it, and its entry "
                f"is made again"
            ) from error

    def write(self, name: str, record: Record) -> None:
        """Keep a record, whole or not at all."""
        with replacing(self.path(name)) as temporary:
            temporary.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")

    def is_complete(self, record: Record) -> bool:
        """Whether the entry is done and its files are as they were written."""
        sizes = [(self.folder / name, size) for name, size in record.files.items()]
        return record.status == "done" and all(output_bytes(path) == size for path, size in sizes)

    def is_begun_by(self, name: str, worker: str) -> bool:
        """Whether no other worker has begun the entry since.

        A worker that outlives its front process must not replace the record of the next run.
        """
        record = self.read(name)
        return record is None or record.worker == worker


def sizes_of(paths: Iterable[Path], folder: Path) -> dict[str, int]:
    """Names relative to `folder`, and sizes, of the files that there are."""
    found = ((path, output_bytes(path)) for path in paths)
    return {str(path.relative_to(folder)): size for path, size in found if size is not None}


def this_worker() -> str:
    """Computer, process and time, for records."""
    moment = datetime.now(UTC).isoformat(timespec="microseconds")
    return f"{socket.gethostname()}, process {os.getpid()}, {moment}"
