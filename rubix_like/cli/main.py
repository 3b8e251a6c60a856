"""The command `rubix-like`: a table of its commands; what a command needs is imported when it is given."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rubix_like.cli import options as of
from rubix_like.cli.options import hint_for_words, in_options, options_in
from rubix_like.runtime.exit_codes import ended_by, explained_exhaustion
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.signals import orderly_termination
from rubix_like.version import __version__

_COMPLETE = "rubix_like.cli.guidance.shell_completion:complete"
"""What answers a shell that completes a line, and ends the process."""


class Command(NamedTuple):
    """A command: one line of help, what gives a parser its options, and what runs it, as `module:function`."""

    text: str
    options: of.Options
    function: str
    groups: Sequence[of.Group] = ()


_SSP: dict[str, Command] = {
    "list": Command("list the libraries and where they are", {}, "rubix_like.cli.ssp_command:print_libraries"),
    "info": Command("describe a library", of.LIBRARY, "rubix_like.cli.ssp_command:print_library"),
    "get": Command("fetch or compute a library into the cache", of.GET, "rubix_like.cli.ssp_command:get_named_library"),
    "import": Command(
        "convert a file or folder and add it to the cache", of.IMPORT, "rubix_like.cli.ssp_command:import_file"
    ),
    "compare": Command(
        "draw two libraries over each other and tell what differs", of.COMPARE, "rubix_like.cli.ssp_command:compare"
    ),
}

_NEBULAR: dict[str, Command] = {
    "list": Command("list the tables and where they are", {}, "rubix_like.cli.nebular_command:print_tables"),
    "info": Command("describe a table", of.TABLE, "rubix_like.cli.nebular_command:print_table_info"),
    "get": Command(
        "fetch a table into the cache, or read it from FSPS",
        of.GET_TABLE,
        "rubix_like.cli.nebular_command:get_named_table",
    ),
    "import": Command(
        "convert a file and add it to the cache", of.IMPORT_TABLE, "rubix_like.cli.nebular_command:import_table_file"
    ),
}

_CACHE: dict[str, Command] = {
    "info": Command(
        "print what is kept, where, and how much room it takes", {}, "rubix_like.cli.cache_command:print_cache"
    ),
    "clear": Command(
        "remove it (not SSP libraries and nebular tables); it is made again when needed",
        {},
        "rubix_like.cli.cache_command:empty_cache",
    ),
}

COMMANDS: dict[str, Command | tuple[str, Mapping[str, Command]]] = {
    "run": Command(
        "make the cube of a configuration and write it",
        of.RUN,
        "rubix_like.cli.run_command:run_cube",
        (of.CATALOGUE, of.PROCESS),
    ),
    "check": Command(
        "check a configuration; print sizes, memory and devices; compute nothing",
        of.CHECK,
        "rubix_like.cli.run_command:check_cube",
        [of.PROCESS],
    ),
    "fit": Command(
        "fit free parameters of a model to an observed cube: best values, uncertainties, residuals",
        of.FIT,
        "rubix_like.cli.inference_command:run_fit",
    ),
    "sample": Command(
        "draw from the posterior of free parameters given an observed cube: NUTS or geoVI, on all devices",
        of.SAMPLE,
        "rubix_like.cli.inference_command:run_sample",
    ),
    "simulate": Command(
        "make a training set: cubes of random parameters, by the thousand, from one compiled program",
        of.SIMULATE,
        "rubix_like.cli.simulate_command:run_simulations",
    ),
    "plot": Command(
        "draw a cube: white light, a narrow band, maps, spectra; --html: a page to look around in it; or maps alone, a "
        "fit, or samples",
        of.PLOT,
        "rubix_like.cli.plot_command:plot",
        [of.OBSERVED],
    ),
    "inspect": Command(
        "say what a galaxy's file holds: simulation, quantities, units, ranges, and what is missing; or what an "
        "observed cube, or a file of rubix-like, is",
        of.INSPECT,
        "rubix_like.cli.inspect_command:inspect_file",
        [of.OBSERVED],
    ),
    "info": Command("the same as inspect", of.INSPECT, "rubix_like.cli.inspect_command:inspect_file", [of.OBSERVED]),
    "new": Command(
        "write a configuration with comments: asks for instrument and galaxy, or takes options",
        of.NEW,
        "rubix_like.cli.guidance.new_command:write_configuration",
    ),
    "list": Command("list what can be named in a configuration", of.LIST, "rubix_like.cli.listing:print_list"),
    "schema": Command(
        "print the JSON schema of a configuration, for editors", {}, "rubix_like.cli.listing:print_schema"
    ),
    "completion": Command(
        "print what makes a shell complete commands, options and settings",
        of.COMPLETION,
        "rubix_like.cli.guidance.shell_completion:print_shell_code",
    ),
    "ssp": ("libraries of simple stellar populations: list, info, get, import, compare", _SSP),
    "nebular": ("tables of the lines of ionised gas: list, info, get, import", _NEBULAR),
    "cache": ("what is kept to make later runs start sooner: info, clear", _CACHE),
}
"""Name -> the command, or one line of help and the commands below it."""


def main(arguments: Sequence[str] | None = None, imported: Callable[[], object] = lambda: None) -> int:
    """Run the command line; returns the exit code: 0, 1 where a part of a catalogue failed, 2 where settings or data
    cannot be used, 70 where the program is at fault; but for 0 with one message on standard error.

    `imported` is called once all that the command needs has been imported, before it begins."""
    options = read_arguments(arguments)
    logging.basicConfig(format="%(message)s", level=logging.ERROR)
    try:
        with orderly_termination(), explained_exhaustion(), exits_as_errors():
            function = found_at(options.function)
            imported()
            code = function(options) or 0
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        options_of = options_in(options.usage())
        return ended_by(error, traceback=options.traceback, words=lambda text: in_options(text, options_of))
    return code


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line; ends the process with code 2, and what may have been meant, where it has
    others."""
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:
        found_at(_COMPLETE)(parser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        hint = hint_for_words(unknown, options.usage(), options.command if "set" in vars(options) else None)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return options


def make_parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    parser = argparse.ArgumentParser(prog="rubix-like", description="Mock IFU datacubes from simulated galaxies.")
    parser.add_argument("--version", action="version", version=f"rubix-like {__version__}")
    parser.add_argument("--traceback", action="store_true", help="show where in the program an error came from")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        if isinstance(command, Command):
            _add(commands, name, command)
            continue
        text, below = command
        actions = commands.add_parser(name, help=text).add_subparsers(required=True, metavar="ACTION")
        for action, own in below.items():
            _add(actions, action, own)
    return parser


def _add(commands, name: str, command: Command) -> None:
    parser = commands.add_parser(name, help=command.text, description=command.text)
    parser.set_defaults(function=command.function, usage=parser.format_usage, command=name)
    for option, keywords in command.options.items():
        parser.add_argument(option, **keywords)
    for group in command.groups:
        place = parser.add_argument_group(group.title, group.description)
        for option, keywords in group.options.items():
            place.add_argument(option, **keywords)
