"""The commands `rubix-like run CONFIG` and `rubix-like check CONFIG`, of one run or of a catalogue (--catalogue)."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rubix_like.cli.options import in_options, read_overrides
from rubix_like.config import RunConfig, load_config
from rubix_like.cube.cube_parts import ShardedCube, sums_of
from rubix_like.errors import ConfigError
from rubix_like.plots.figure import save_quicklook
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.batch.catalogue import How, Outcome, catalogue_folder, observe_all, read_part
from rubix_like.runs.batch.entries import check_every_file, read_entries
from rubix_like.runs.batch.records import outside_notes
from rubix_like.runs.particles_on_disk import agreed
from rubix_like.runs.run import check_lines, compute, prepare_for_check
from rubix_like.runs.run_files import (
    check_output,
    check_replaced,
    missing_maps_lines,
    named_files,
    output_files,
    with_default_maps,
)
from rubix_like.runs.run_summary import closing_lines
from rubix_like.runtime.compiled_programs import set_up_jax
from rubix_like.runtime.files.outputs import beside, check_writable, given_files
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.memory import check_memory
from rubix_like.runtime.notes import WARNING, Note, checking_lines
from rubix_like.runtime.processes.jax_processes import joined
from rubix_like.runtime.processes.launch import read_launch
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Progress, terminal_progress
from rubix_like.runtime.words import counted, format_bytes


def _load(options: argparse.Namespace) -> RunConfig:
    config = with_default_maps(load_config(options.config, overrides=read_overrides(options.set)))
    set_up_jax(config.engine.precision)
    return config


@contextmanager
def _team(options: argparse.Namespace) -> Iterator[AbstractProcessGroup]:
    """The processes of a run, as the options say; what libraries print then goes to standard error."""
    launch = read_launch(options)
    if launch is None:
        yield SINGLE
        return
    results = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.stdout = os.fdopen(results, "w", buffering=1)
    with joined(launch) as team:
        yield team


def _progress(team: AbstractProcessGroup) -> Progress:
    """Shown by process 0 alone."""
    return terminal_progress() if team.number == 0 else Progress()


def _is_of_catalogue(options: argparse.Namespace, *others: str) -> bool:
    """Whether the options are those of a catalogue; raises ConfigError for some that go with one run or with a
    catalogue only."""
    if options.catalogue is not None:
        if read_launch(options) is not None:
            raise ConfigError("--catalogue: expected no --distributed; start the command several times instead")
        return True
    for name in others:
        if getattr(options, name) not in (None, False):
            raise ConfigError(f"--{name}: expected --catalogue LIST.csv beside it, got none")
    return False


def run_cube(options: argparse.Namespace) -> int:
    """`rubix-like run`; returns the exit code."""
    if _is_of_catalogue(options, "views", "part", "redo", "executor", "block"):
        return _run_listed(options)
    with _team(options) as team:
        _run_together(options, team)
    return 0


def _run_together(options: argparse.Namespace, team: AbstractProcessGroup) -> None:
    config = agreed(lambda: _load(options), team)
    path = Path(config.output.path if options.output is None else options.output).expanduser()
    picture = beside(output_files(config, path)[-1].path, ".png") if options.plot else None
    read = tuple(given_files({"CONFIG": options.config}))

    def check_picture() -> None:
        if picture is not None:
            import_matplotlib()
            check_outputs([picture], [PICTURE], "output", (*named_files(config), *read), overwrite=options.overwrite)
            check_writable(picture, 0)

    if options.plot:
        team.in_first(check_picture)
    progress = _progress(team)
    cube, path, others, remarks = compute(config, path, progress, team, read, overwrite=options.overwrite)
    if picture is not None:
        with progress.step("plot", f"drawing {picture}"):
            if isinstance(cube, ShardedCube):
                save_quicklook(cube, picture, team)
            else:
                team.in_first(lambda: save_quicklook(cube, picture))
    sums = sums_of(cube, team) if isinstance(cube, ShardedCube) else None
    if team.number == 0:
        lines = closing_lines(cube, path, others, progress.timings, config.output.layout, sums, remarks)
        pictures = [] if picture is None else [f"Picture: {picture}"]
        print(*lines, *missing_maps_lines(config), *pictures, sep="\n")


def check_cube(options: argparse.Namespace) -> int:
    """`rubix-like check`; returns the exit code."""
    if _is_of_catalogue(options, "views"):
        return _check_listed(options)
    with _team(options) as team:
        config = agreed(lambda: _load(options), team)
        if config.fit is not None:
            request = importlib.import_module("rubix_like.inference.request")
            importlib.import_module("rubix_like.inference.posterior.free_parameters").check_free_of(config)
            lines: list[str] = []
            team.in_first(lambda: lines.extend(request.data_lines(config)))
            print(*(f"{line}\n" for line in lines), sep="", end="")
        team.in_first(lambda: check_output(config, config.output.path, overwrite=True))
        for name, prepared in prepare_for_check(config, _progress(team), team):
            if team.number == 0:
                what = "arm" if config.observations is None else "observation"
                print(*([f"{what:<12}{name}"] if name else []), *check_lines(prepared), sep="\n")
            team.exchange(lambda prepared=prepared: check_memory(prepared.need, prepared.pipeline.mesh))
        if team.number == 0:
            try:
                check_replaced(config, config.output.path)
            except ConfigError as error:  # a run would be refused
                text = in_options(str(error), ["--output", "--overwrite"])
                print(*checking_lines([Note("output.exists", text, WARNING)]), sep="\n")
    return 0


EXIT_SOME_FAILED = 1
"""Exit code where some entries failed or were lost, and the others are done."""

_SHOWN = 10


def _run_listed(options: argparse.Namespace) -> int:
    """Observe what the options list, and print what became of it; returns the exit code."""
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
    """The lines at the end of a catalogue; views of a galaxy that failed alike are named together."""
    counts = [f"{outcome.n_done} done"]
    counts += [f"{outcome.n_skipped} done before"] if outcome.n_skipped else []
    counts += [f"{outcome.n_failed} failed"] if outcome.n_failed else []
    counts += [f"{len(outcome.lost)} lost"] if outcome.lost else []
    lines = [f"Catalogue in {outcome.folder}: {', '.join(counts)}", f"Summary: {outcome.summary}"]
    rows = [row for row in outcome.rows if row["name"] in outcome.names]
    empty = {row["name"]: note for row in rows for note in outside_notes(row)}
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] == "failed":
            alike.setdefault((row["galaxy"], row["error"]), []).append(row["name"])
    failed = {
        names[0] if len(names) == 1 else f"{galaxy} ({len(names)} views)": error
        for (galaxy, error), names in alike.items()
    }
    lines += [*_reasons("Warning", empty), *_reasons("Failed", failed), *_reasons("Lost", outcome.lost)]
    if failed or outcome.lost:
        lines.append("To try again what failed or was lost, once mended: the same command")
    return lines


def _reasons(what: str, reasons: Mapping[str, str]) -> list[str]:
    lines = [f"{what}: {name}: {reason}" for name, reason in list(reasons.items())[:_SHOWN]]
    return [*lines, *([f"  and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else [])]


def _check_listed(options: argparse.Namespace) -> int:
    """`rubix-like check CONFIG --catalogue LIST`: every row is checked, every file opened, the first run planned.

    Returns the exit code that the run would have. Raises ConfigError with all rows that cannot be used.
    """
    entries = read_entries(options.config, options.catalogue, options.views, read_overrides(options.set))
    opened = check_every_file(entries)
    failed = {galaxy: reason for galaxy, reason in opened.items() if reason}
    set_up_jax(entries[0].config.engine.precision)
    galaxies, programs = ({getattr(entry, name) for entry in entries} for name in ("galaxy", "compiling"))
    folder = entries[0].path.parent
    done = sum(entry.path.exists() for entry in entries)
    n_bytes = sum(
        file.n_bytes + file.truth_bytes for entry in entries for file in output_files(entry.config, entry.path)
    )
    print(
        f"catalogue   {counted(len(entries), 'run')} of {counted(len(galaxies), 'galaxy', 'galaxies')}, "
        f"{counted(len(programs), 'kind')} of programs to compile at least",
        f"folder      {folder}" + (f" ({counted(done, 'cube')} there already)" if done else ""),
        f"files       about {format_bytes(n_bytes)} in all, uncompressed",
        sep="\n",
    )
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
