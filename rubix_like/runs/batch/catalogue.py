"""A catalogue from Python: every galaxy of a list in every view."""

from concurrent.futures import Executor
from pathlib import Path

from rubix_like.arguments import named_arguments, note_renamed
from rubix_like.config.loading import ConfigSource
from rubix_like.errors import ConfigError
from rubix_like.runs.batch.entries import read_entries
from rubix_like.runs.batch.rows import RowSource
from rubix_like.runs.batch.running import How, Outcome, observe_all
from rubix_like.runtime.files.outputs import given_files
from rubix_like.runtime.progress import Progress


@named_arguments
def run_catalogue(
    config: ConfigSource,
    catalogue: RowSource,
    views: RowSource | None = None,
    output: str | Path | None = None,
    *,
    part: str | None = None,
    redo: bool = False,
    overwrite: bool = False,
    executor: Executor | str | None = None,
    block: int | None = None,
) -> Outcome:
    """Observe many galaxies: every row of `catalogue` in every one of `views`, each as `run` would.

    Both are CSV files, or lists of dicts, whose columns are dotted settings of `config` and `name`. Cubes, records and
    summary.csv go into the folder `output` (None: output.path without its ending). Entries that are done are skipped,
    failures are recorded and the rest goes on; `part`, "2/8", takes the second of eight shares of the galaxies;
    `overwrite` (`redo` until version 0.4) makes entries again that were made from other settings. Files that no record
    of the folder names are never replaced.

    `executor`: any of `concurrent.futures`, which is left open, or the words that name one, "processes:4" (None: this
    process computes everything itself); it gets `block` entries at a time (None: one galaxy in all its views). A script
    that starts processes needs `if __name__ == "__main__":` around the call. Raises ConfigError or OSError, before
    anything is computed, for lists, settings, a folder or an executor that cannot be used.
    """
    if redo:
        note_renamed("redo=True", "overwrite=True")
    how = How(executor, block)
    entries = read_entries(config, catalogue, views, folder=catalogue_folder(output))
    read = tuple(given_files({"configuration": config, "catalogue": catalogue, "views": views}))
    return observe_all(entries, Progress(), read_part(part), overwrite=overwrite or redo, how=how, read=read)


def read_part(text: str | None) -> tuple[int, int] | None:
    """(2, 8) of "2/8"; raises ConfigError for what is no share."""
    if text is None:
        return None
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise ConfigError(f"part: expected K/N with K from 1 to N (2/8: the second of eight shares), got '{text}'")


def catalogue_folder(output: str | Path | None) -> Path | None:
    """The folder of a catalogue's cubes (None: as the settings say); ConfigError for the name of a file."""
    if output is None:
        return None
    folder = Path(output).expanduser()
    if not str(output) or folder.name.lower().endswith((".fits", ".fits.gz", ".h5", ".hdf5")):
        raise ConfigError(f"output: expected a folder for the cubes of the catalogue, got '{output}'")
    return folder
