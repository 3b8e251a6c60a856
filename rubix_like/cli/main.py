"""The command `rubix-like`; what a command needs is imported when it is given."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence

from rubix_like.cli.commands import COMMANDS, Command
from rubix_like.cli.options import hint_for_words, in_options, options_in
from rubix_like.runtime.exit_codes import ended_by, explained_exhaustion, orderly_termination
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.version import __version__


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
        found_at("rubix_like.cli.shell_completion:complete")(parser)  # answers the shell, and ends the process
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
        for action, command_below in below.items():
            _add(actions, action, command_below)
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
