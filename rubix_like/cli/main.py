"""The command `rubix-like`: run, check, fit, sample, plot, inspect, list, schema, ssp, cache."""

import argparse
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax

from rubix_like.cli.catalogue_command import add_catalogue_options, check_catalogue_options, run_listed
from rubix_like.cli.inference_command import add_inference_commands
from rubix_like.cli.inspect_command import INSPECT_HELP, add_inspect_options, inspect_file
from rubix_like.cli.listing import config_rows, instrument_table, pipeline_rows, print_table, reader_rows, stage_rows
from rubix_like.cli.options import add_set_option, read_overrides
from rubix_like.cli.plot_command import PLOT_HELP, add_plot_options, plot
from rubix_like.cli.ssp_command import COMPARE_HELP, add_compare_options, compare
from rubix_like.config import RunConfig, json_schema, load_config
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.cube_sums import sums_of
from rubix_like.errors import ConfigError
from rubix_like.plots.quicklook import save_quicklook
from rubix_like.plots.style import require_matplotlib
from rubix_like.runs.named_files import named_files
from rubix_like.runs.run import check_lines, compute, prepare
from rubix_like.runs.run_files import check_output, output_files
from rubix_like.runs.run_summary import summary_lines
from rubix_like.runs.together import agreed
from rubix_like.runtime.arrays_on_disk import COMPILED_LIMIT_BYTES, cache_lines, clear_cache, compiled_folder
from rubix_like.runtime.exit_codes import ended_by
from rubix_like.runtime.files.file_names import beside
from rubix_like.runtime.files.outputs import check_writable
from rubix_like.runtime.files.separate_files import Named, check_separate, given_files
from rubix_like.runtime.memory import check_memory, explained_exhaustion
from rubix_like.runtime.processes.joining import joined
from rubix_like.runtime.processes.launch import add_process_options, read_launch
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Progress, terminal_progress
from rubix_like.runtime.resources import cache_directory
from rubix_like.runtime.signals import orderly_termination
from rubix_like.runtime.words import format_bytes
from rubix_like.ssp import describe_library, get, import_library, list_libraries, load_ssp
from rubix_like.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 1 where a part of a catalogue failed, 2 where settings or data
    cannot be used, 70 where the program is at fault; but for 0 with one message on standard error."""
    options = make_parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with orderly_termination(), explained_exhaustion():
            code = options.command(options) or 0
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return ended_by(error, traceback=options.traceback)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(prog="rubix-like", description="Mock IFU datacubes from simulated galaxies.")
    parser.add_argument("--version", action="version", version=f"rubix-like {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = _add(commands, "run", _run, "make the cube of a configuration and write it")
    _add_config(run)
    run.add_argument("--output", metavar="PATH", help="file, or folder of a catalogue (default: output.path)")
    run.add_argument("--plot", action="store_true", help="also write a quick-look PNG beside the cube")
    add_catalogue_options(run)
    add_process_options(run)
    check = _add(commands, "check", _check, "check a configuration; print sizes, memory and devices; compute nothing")
    _add_config(check)
    add_process_options(check)
    add_inference_commands(functools.partial(_add, commands), _add_config, _set_up_jax)
    add_plot_options(_add(commands, "plot", plot, PLOT_HELP))
    add_inspect_options(_add(commands, "inspect", _inspect, INSPECT_HELP))
    listing = _add(commands, "list", _list, "list what can be named in a configuration")
    listing.add_argument("kind", choices=("instruments", *_LISTS))
    _add(commands, "schema", _schema, "print the JSON schema of a configuration, for editors")
    _add_ssp(commands)
    cache = commands.add_parser("cache", help="what is kept to make later runs start sooner: info, clear")
    actions = cache.add_subparsers(required=True, metavar="ACTION")
    _add(actions, "info", _cache_info, "print what is kept, where, and how much room it takes")
    _add(actions, "clear", _cache_clear, "remove it (not the SSP libraries); it is made again when needed")
    return parser


def _add(
    commands, name: str, command: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=command)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a YAML file, or the name of a packaged configuration")
    add_set_option(
        parser,
        'override settings (after CONFIG), e.g. --set observation.inclination="40 deg" noise.signal_to_noise=50',
    )


def _add_ssp(commands) -> None:
    ssp = commands.add_parser("ssp", help="libraries of simple stellar populations: list, info, get, import, compare")
    actions = ssp.add_subparsers(required=True, metavar="ACTION")
    _add(actions, "list", _ssp_list, "list the libraries and where they are")
    info = _add(actions, "info", _ssp_info, "describe a library")
    info.add_argument("name", help="a name from `rubix-like ssp list`, or a path")
    get = _add(actions, "get", _ssp_get, "fetch or compute a library into the cache")
    get.add_argument("name", help="bc03-miles, bc03-lr (both fetched) or fsps (computed with python-fsps)")
    get.add_argument("--force", action="store_true", help="do it again")
    importing = _add(actions, "import", _ssp_import, "convert a file or folder and add it to the cache")
    importing.add_argument("file", help="a file, or a folder (E-MILES, BC03); docs/ssp.md lists the layouts")
    importing.add_argument("--name", help="the name to give it (default: that of its library, or the file's)")
    add_compare_options(_add(actions, "compare", compare, COMPARE_HELP))


def _load(options: argparse.Namespace) -> RunConfig:
    """The configuration, with JAX set up for it."""
    config = load_config(options.config, overrides=read_overrides(options.set))
    _set_up_jax(config.engine.precision)
    return config


def _set_up_jax(precision: str) -> None:
    """64-bit numbers where asked for, and a cache of compiled programs that outlives the command."""
    jax.config.update("jax_enable_x64", precision == "float64")
    folder = compiled_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # no cache: every command compiles anew
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_compilation_cache_max_size", COMPILED_LIMIT_BYTES)


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


def _run(options: argparse.Namespace) -> int:
    if options.catalogue is not None:
        if read_launch(options) is not None:
            raise ConfigError("--catalogue: expected no --distributed; start the command several times instead")
        return run_listed(options, _set_up_jax)
    check_catalogue_options(options)
    with _team(options) as team:
        lines = _run_together(options, team)
        if team.number == 0:
            print(*lines, sep="\n")
    return 0


def _run_together(options: argparse.Namespace, team: AbstractProcessGroup) -> list[str]:
    """The run; the lines that it ends with."""
    config = agreed(lambda: _load(options), team)
    path = Path(config.output.path if options.output is None else options.output).expanduser()
    picture = beside(output_files(config, path)[-1].path, ".png") if options.plot else None
    read = tuple(given_files({"CONFIG": options.config}))
    if picture is not None:
        team.in_first(lambda: _check_picture(picture, (*named_files(config), *read)))
    progress = _progress(team)
    cube, path, others = compute(config, path, progress, team, read)
    if picture is not None:
        with progress.step("plot", f"drawing {picture}"):
            _draw(cube, picture, team)
    sums = sums_of(cube, team) if isinstance(cube, ShardedCube) else None
    if team.number > 0:
        return []
    written = [f"{what} written to {other}" for what, other in others]
    notes = [f"Note: {value}" for key, value in cube.meta.items() if key.startswith("note_")]
    pictures = [] if picture is None else [f"Picture: {picture}"]
    return [*written, *summary_lines(cube, path, progress.timings, config.output.layout, sums), *notes, *pictures]


def _draw(cube: Cube | ShardedCube, path: Path, team: AbstractProcessGroup) -> None:
    """The quick look: of parts by all processes that have them, of a whole cube by process 0."""
    if isinstance(cube, ShardedCube):
        save_quicklook(cube, path, team)
    else:
        team.in_first(lambda: save_quicklook(cube, path))


def _check_picture(path: Path, read: Iterable[Named]) -> None:
    """Raise before the run where a picture could not be drawn or written after it, or would replace what is read."""
    require_matplotlib()
    check_separate([path], read, "--plot")
    check_writable(path, 0)


def _check(options: argparse.Namespace) -> None:
    with _team(options) as team:
        config = agreed(lambda: _load(options), team)
        team.in_first(lambda: check_output(config, config.output.path))
        with prepare(config, _progress(team), team=team) as prepared:
            if team.number == 0:
                print(*check_lines(prepared), sep="\n")
            team.exchange(lambda: check_memory(prepared.need, prepared.pipeline.mesh))


def _inspect(options: argparse.Namespace) -> None:
    inspect_file(options, read_overrides(options.set))


def _list(options: argparse.Namespace) -> None:
    if options.kind == "instruments":
        print_table(instrument_table())
        return
    for name, text in _LISTS[options.kind]():
        print(f"{name:<14} {text}".rstrip())


_LISTS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "ssp": list_libraries,
    "stages": stage_rows,
    "readers": reader_rows,
    "pipelines": pipeline_rows,
    "configs": config_rows,
}


def _schema(options: argparse.Namespace) -> None:  # noqa: ARG001
    print(json.dumps(json_schema(), indent=2))


def _ssp_list(options: argparse.Namespace) -> None:  # noqa: ARG001
    for name, text in list_libraries():
        print(f"{name:<14} {text}")


def _ssp_info(options: argparse.Namespace) -> None:
    print(describe_library(load_ssp(options.name)))


def _ssp_get(options: argparse.Namespace) -> None:
    path = get(options.name, progress=_say, force=options.force)
    print(f"Library {options.name} is in {path}; use it with ssp: {{library: {options.name}}}")


def _ssp_import(options: argparse.Namespace) -> None:
    path = import_library(options.file, options.name)
    print(f"Library {path.stem} is in {path}; use it with ssp: {{library: {path.stem}}}")


def _cache_info(options: argparse.Namespace) -> None:  # noqa: ARG001
    for line in cache_lines():
        print(line)


def _cache_clear(options: argparse.Namespace) -> None:  # noqa: ARG001
    n_files, n_bytes = clear_cache()
    print(f"Removed {n_files} file{'' if n_files == 1 else 's'} ({format_bytes(n_bytes)}) from {cache_directory()}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
