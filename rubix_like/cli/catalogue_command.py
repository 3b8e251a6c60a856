"""A catalogue from the command line: `rubix-like run CONFIG --catalogue LIST`."""

import argparse
import sys
from collections.abc import Mapping, Sequence

from rubix_like.cli.jax_settings import set_up_jax
from rubix_like.cli.options import read_overrides
from rubix_like.errors import ConfigError
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.batch.catalogue import catalogue_folder, read_part
from rubix_like.runs.batch.entries import Entry, check_every_file, read_entries
from rubix_like.runs.batch.running import How, Outcome, observe_all
from rubix_like.runs.batch.table import SummaryRow, outside_notes
from rubix_like.runs.run import check_lines, prepare_for_check
from rubix_like.runs.run_files import output_files
from rubix_like.runtime.files.outputs import given_files
from rubix_like.runtime.memory import check_memory
from rubix_like.runtime.progress import terminal_progress
from rubix_like.runtime.words import counted, format_bytes

EXIT_SOME_FAILED = 1
"""Exit code where some entries failed or were lost, and the others are done."""

_SHOWN = 10


def check_catalogue_options(options: argparse.Namespace) -> None:
    """Raise ConfigError where options of a catalogue come without one."""
    for name in ("views", "part", "redo", "executor", "block"):
        if getattr(options, name):
            raise ConfigError(f"--{name}: expected --catalogue LIST.csv beside it, got none")


def run_listed(options: argparse.Namespace) -> int:
    """The command: observe what the options list, say what became of it; returns the exit code."""
    part, how = read_part(options.part), How(options.executor, options.block, options.plot, alone=True)
    if options.plot:
        import_matplotlib()
    if options.redo:
        print("--redo is called --overwrite now; the old word works until version 0.4", file=sys.stderr)
    overrides = read_overrides(options.set)
    entries = read_entries(
        options.config, options.catalogue, options.views, overrides, catalogue_folder(options.output)
    )
    set_up_jax(entries[0].config.engine.precision)
    read = tuple(given_files({"CONFIG": options.config, "LIST": options.catalogue, "VIEWS": options.views}))
    outcome = observe_all(
        entries, terminal_progress(), part, overwrite=options.overwrite or options.redo, how=how, read=read
    )
    print(*outcome_lines(outcome), sep="\n")
    return EXIT_SOME_FAILED if outcome.n_failed or outcome.lost else 0


def outcome_lines(outcome: Outcome) -> list[str]:
    """What is said at the end."""
    counts = [f"{outcome.n_done} done"]
    counts += [f"{outcome.n_skipped} done before"] if outcome.n_skipped else []
    counts += [f"{outcome.n_failed} failed"] if outcome.n_failed else []
    counts += [f"{len(outcome.lost)} lost"] if outcome.lost else []
    lines = [f"Catalogue in {outcome.folder}: {', '.join(counts)}", f"Summary: {outcome.summary}"]
    rows = [row for row in outcome.rows if row["name"] in outcome.names]
    empty = {row["name"]: note for row in rows for note in outside_notes(row)}
    failed = _by_galaxy([row for row in rows if row["status"] == "failed"])
    lines += [*_reasons("Warning", empty), *_reasons("Failed", failed), *_reasons("Lost", outcome.lost)]
    if failed or outcome.lost:
        lines.append("To try again what failed or was lost, once mended: the same command")
    return lines


def _by_galaxy(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """Why entries failed: views of a galaxy that failed alike are named together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        alike.setdefault((row["galaxy"], row["error"]), []).append(row["name"])
    return {
        names[0] if len(names) == 1 else f"{galaxy} ({len(names)} views)": error
        for (galaxy, error), names in alike.items()
    }


def _reasons(what: str, reasons: Mapping[str, str]) -> list[str]:
    """A line for each of the first names, and how many more there are."""
    lines = [f"{what}: {name}: {reason}" for name, reason in list(reasons.items())[:_SHOWN]]
    return [*lines, *([f"  and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else [])]


def check_listed(options: argparse.Namespace) -> int:
    """`rubix-like check CONFIG --catalogue LIST`: every row is checked, every file opened, the first run planned.

    Returns the exit code that the run would have. Raises ConfigError with all rows that cannot be used.
    """
    entries = read_entries(options.config, options.catalogue, options.views, read_overrides(options.set))
    opened = check_every_file(entries)
    failed = {galaxy: reason for galaxy, reason in opened.items() if reason}
    set_up_jax(entries[0].config.engine.precision)
    print(*_catalogue_lines(entries), sep="\n")
    if opened:
        print(f"opened      {counted(len(opened), 'galaxy', 'galaxies')} in files of simulations")
    first = next((entry for entry in entries if entry.galaxy not in failed), None)
    if first is not None:
        try:
            for _, prepared in prepare_for_check(first.config, terminal_progress()):
                print(f"The first, {first.name}:", *(f"  {line}" for line in check_lines(prepared)), sep="\n")
                check_memory(prepared.need, prepared.pipeline.mesh)
        except (ValueError, OSError, MemoryError) as error:
            failed[first.galaxy] = str(error)
    print(*_reasons("Failed", failed), sep="\n", end="\n" if failed else "")
    return EXIT_SOME_FAILED if failed else 0


def _catalogue_lines(entries: Sequence[Entry]) -> list[str]:
    """How many runs there are, of how many galaxies, in how many programs, where they go and what they take."""
    galaxies, programs = ({getattr(own, name) for own in entries} for name in ("galaxy", "compiling"))
    folder = entries[0].path.parent
    done = sum(own.path.exists() for own in entries)
    n_bytes = sum(file.n_bytes + file.truth_bytes for own in entries for file in output_files(own.config, own.path))
    return [
        f"catalogue   {counted(len(entries), 'run')} of {counted(len(galaxies), 'galaxy', 'galaxies')}, "
        f"{counted(len(programs), 'kind')} of programs to compile at least",
        f"folder      {folder}" + (f" ({counted(done, 'cube')} there already)" if done else ""),
        f"files       about {format_bytes(n_bytes)} in all, uncompressed",
    ]
