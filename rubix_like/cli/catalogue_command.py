"""Starting a catalogue: from Python, and with `rubix-like run CONFIG --catalogue LIST`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rubix_like.cli.options import read_overrides
from rubix_like.config.loading import ConfigSource
from rubix_like.errors import ConfigError
from rubix_like.plots.style import require_matplotlib
from rubix_like.runs.batch.entries import read_entries
from rubix_like.runs.batch.rows import RowSource
from rubix_like.runs.batch.running import Outcome, observe_all
from rubix_like.runtime.files.separate_files import given_files
from rubix_like.runtime.progress import Progress, terminal_progress

EXIT_SOME_FAILED = 1
"""Exit code where some entries failed and the others are done."""

_SHOWN = 10


def run_catalogue(
    config: ConfigSource,
    catalogue: RowSource,
    views: RowSource | None = None,
    output: str | Path | None = None,
    *,
    part: str | None = None,
    redo: bool = False,
) -> Outcome:
    """Observe many galaxies: every row of `catalogue` in every one of `views`, each as `run` would.

    Both are CSV files, or lists of dicts, whose columns are dotted settings of `config` and `name`. Cubes, records and
    summary.csv go into the folder `output` (None: output.path without its ending). Entries that are done are skipped,
    failures are recorded and the rest goes on; `part`, "2/8", takes the second of eight shares of the galaxies; `redo`
    makes entries again that were made from other settings. Raises ConfigError or OSError, before anything is computed,
    for lists, settings or a folder that cannot be used.
    """
    entries = read_entries(config, catalogue, views, folder=_folder(output))
    read = tuple(given_files({"configuration": config, "catalogue": catalogue, "views": views}))
    return observe_all(entries, Progress(), read_part(part), redo=redo, read=read)


def read_part(text: str | None) -> tuple[int, int] | None:
    """(2, 8) of "2/8"; raises ConfigError for what is no share."""
    if text is None:
        return None
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise ConfigError(f"--part: expected K/N with K from 1 to N (2/8: the second of eight shares), got '{text}'")


def add_catalogue_options(parser: argparse.ArgumentParser) -> None:
    """Give a command the options of a catalogue."""
    group = parser.add_argument_group("many galaxies")
    group.add_argument("--catalogue", metavar="LIST.csv", help="one run per row; columns are settings, and 'name'")
    group.add_argument("--views", metavar="VIEWS.csv", help="settings with which every galaxy of the list is observed")
    group.add_argument("--part", metavar="K/N", help="only the K-th of N shares of the galaxies, for job arrays")
    group.add_argument("--redo", action="store_true", help="make entries again whose settings or files have changed")


def check_catalogue_options(options: argparse.Namespace) -> None:
    """Raise ConfigError where options of a catalogue come without one."""
    for name in ("views", "part", "redo"):
        if getattr(options, name):
            raise ConfigError(f"--{name}: expected --catalogue LIST.csv beside it, got none")


def run_listed(options: argparse.Namespace, set_up: Callable[[str], None]) -> int:
    """The command: observe what the options list, say what became of it; returns the exit code.

    `set_up` is called with the precision of the run before anything is computed.
    """
    part = read_part(options.part)
    if options.plot:
        require_matplotlib()
    overrides = read_overrides(options.set)
    entries = read_entries(options.config, options.catalogue, options.views, overrides, _folder(options.output))
    set_up(entries[0].config.engine.precision)
    read = tuple(given_files({"CONFIG": options.config, "LIST": options.catalogue, "VIEWS": options.views}))
    outcome = observe_all(entries, terminal_progress(), part, redo=options.redo, with_picture=options.plot, read=read)
    print(*outcome_lines(outcome), sep="\n")
    return EXIT_SOME_FAILED if outcome.n_failed else 0


def outcome_lines(outcome: Outcome) -> list[str]:
    """What is said at the end."""
    counts = [f"{outcome.n_done} done"]
    counts += [f"{outcome.n_skipped} done before"] if outcome.n_skipped else []
    counts += [f"{outcome.n_failed} failed"] if outcome.n_failed else []
    counts += [f"{outcome.n_elsewhere} with other processes"] if outcome.n_elsewhere else []
    lines = [f"Catalogue in {outcome.folder}: {', '.join(counts)}", f"Summary: {outcome.summary}"]
    failed = [row for row in outcome.rows if row["status"] == "failed"]
    lines += [f"Failed: {row['name']}: {row['error']}" for row in failed[:_SHOWN]]
    lines += [f"  and {len(failed) - _SHOWN} more, in the summary"] if len(failed) > _SHOWN else []
    if failed:
        lines.append("To try what failed again: the same command")
    return lines


def _folder(output: str | Path | None) -> Path | None:
    if output is None:
        return None
    folder = Path(output).expanduser()
    if not str(output) or folder.name.lower().endswith((".fits", ".fits.gz", ".h5", ".hdf5")):
        raise ConfigError(f"--output: expected a folder for the cubes of the catalogue, got '{output}'")
    return folder
