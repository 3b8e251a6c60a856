"""The commands `rubix-like run CONFIG` and `rubix-like check CONFIG`."""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rubix_like.cli.catalogue_command import check_catalogue_options, check_listed, run_listed
from rubix_like.cli.jax_settings import set_up_jax
from rubix_like.cli.option_words import in_options
from rubix_like.cli.options import read_overrides
from rubix_like.config import RunConfig, load_config
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, sums_of
from rubix_like.errors import ConfigError
from rubix_like.plots.figure import save_quicklook
from rubix_like.plots.style import import_matplotlib
from rubix_like.runs.default_maps import missing_maps_lines, with_default_maps
from rubix_like.runs.run import check_lines, compute, prepare_for_check
from rubix_like.runs.run_files import check_output, check_replaced, named_files, output_files
from rubix_like.runs.run_summary import closing_lines
from rubix_like.runs.together import agreed
from rubix_like.runtime.files.outputs import Named, beside, check_writable, given_files
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.memory import check_memory
from rubix_like.runtime.processes.jax_processes import joined
from rubix_like.runtime.processes.launch import read_launch
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Progress, terminal_progress


def _load(options: argparse.Namespace) -> RunConfig:
    """The configuration, with JAX set up for it."""
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


def run_cube(options: argparse.Namespace) -> int:
    """`rubix-like run`; returns the exit code."""
    if options.catalogue is not None:
        _refuse_distributed(options)
        return run_listed(options)
    check_catalogue_options(options)
    with _team(options) as team:
        lines = _run_together(options, team)
        if team.number == 0:
            print(*lines, sep="\n")
    return 0


def _refuse_distributed(options: argparse.Namespace) -> None:
    """Raise ConfigError where a catalogue is given to one of several processes."""
    if read_launch(options) is not None:
        raise ConfigError("--catalogue: expected no --distributed; start the command several times instead")


def _run_together(options: argparse.Namespace, team: AbstractProcessGroup) -> list[str]:
    """The run; the lines that it ends with."""
    config = agreed(lambda: _load(options), team)
    path = Path(config.output.path if options.output is None else options.output).expanduser()
    picture = beside(output_files(config, path)[-1].path, ".png") if options.plot else None
    read = tuple(given_files({"CONFIG": options.config}))
    if picture is not None:
        team.in_first(lambda: _check_picture(picture, (*named_files(config), *read), overwrite=options.overwrite))
    progress = _progress(team)
    cube, path, others = compute(config, path, progress, team, read, overwrite=options.overwrite)
    if picture is not None:
        with progress.step("plot", f"drawing {picture}"):
            _draw(cube, picture, team)
    sums = sums_of(cube, team) if isinstance(cube, ShardedCube) else None
    if team.number > 0:
        return []
    pictures = [] if picture is None else [f"Picture: {picture}"]
    lines = closing_lines(cube, path, others, progress.timings, config.output.layout, sums)
    return [*lines, *missing_maps_lines(config), *pictures]


def _draw(cube: Cube | ShardedCube, path: Path, team: AbstractProcessGroup) -> None:
    """The quick look: of parts by all processes that have them, of a whole cube by process 0."""
    if isinstance(cube, ShardedCube):
        save_quicklook(cube, path, team)
    else:
        team.in_first(lambda: save_quicklook(cube, path))


def _check_picture(path: Path, read: Iterable[Named], *, overwrite: bool) -> None:
    """Raise before the run where a picture could not be drawn or written after it, or would replace what is read."""
    import_matplotlib()
    check_outputs([path], [PICTURE], "output", read, overwrite=overwrite)
    check_writable(path, 0)


def check_cube(options: argparse.Namespace) -> int:
    """`rubix-like check`; returns the exit code."""
    if options.catalogue is not None:
        _refuse_distributed(options)
        return check_listed(options)
    if options.views is not None:
        raise ConfigError("--views: expected --catalogue LIST.csv beside it, got none")
    with _team(options) as team:
        config = agreed(lambda: _load(options), team)
        if config.fit is not None:
            request = importlib.import_module("rubix_like.inference.request")
            request.check_fit_section(config)
            lines: list[str] = []
            team.in_first(lambda: lines.extend(request.data_lines(config)))
            print(*(f"{line}\n" for line in lines), sep="", end="")
        team.in_first(lambda: check_output(config, config.output.path, overwrite=True))
        for name, prepared in prepare_for_check(config, _progress(team), team):
            if team.number == 0:
                print(*([f"arm         {name}"] if name else []), *check_lines(prepared), sep="\n")
            team.exchange(lambda prepared=prepared: check_memory(prepared.need, prepared.pipeline.mesh))
        for line in _replaced_lines(config) if team.number == 0 else ():
            print(line)
    return 0


def _replaced_lines(config: RunConfig) -> list[str]:
    """Says so where a run would be refused because of the files that it would replace."""
    try:
        check_replaced(config, config.output.path)
    except ConfigError as error:
        return [f"note        {in_options(str(error), ['--output', '--overwrite'])}"]
    return []
