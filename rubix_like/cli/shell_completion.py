"""Completion of command lines in bash, zsh and fish, by argcomplete; JAX is imported for the keys of `galaxy` alone."""

import argparse
from collections.abc import Iterator
from typing import Any

from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.places import found_at
from rubix_like.runtime.resources import resource_names

_SHELLS: tuple[str, ...] = ("bash", "zsh", "fish")

_SET_UP = {
    "bash": "echo 'eval \"$(rubix-like completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(rubix-like completion zsh)\"' >> ~/.zshrc",
    "fish": "rubix-like completion fish > ~/.config/fish/completions/rubix-like.fish",
}
"""Shell -> what makes the completion last."""

_NAMED = {
    "instrument.name": "instruments",
    "pipeline": "pipelines",
    "galaxy.reader": "simulations",
    "noise.exposure.sky": "skies",
}
"""Settings whose values are names of packaged files -> their kind."""


def print_shell_code(options: argparse.Namespace) -> None:
    """`rubix-like completion`."""
    if options.shell not in _SHELLS:
        raise ConfigError(f"completion: unknown shell '{options.shell}'{suggest(options.shell, _SHELLS)}")
    print(f"# To keep it: {_SET_UP[options.shell]}")
    print(found_at("argcomplete:shellcode")(["rubix-like"], shell=options.shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell that has asked, through its environment, and end the process."""
    files = found_at("argcomplete.completers:FilesCompleter")
    yaml = files(("yaml", "yml"))

    def configurations(prefix: str, **others: Any) -> list[str]:
        return [*_beginning(prefix, resource_names("configs")), *yaml(prefix, **others)]

    def instruments(prefix: str, **others: Any) -> list[str]:  # noqa: ARG001
        return _beginning(prefix, resource_names("instruments"))

    completers = {"config": configurations, "set": settings, "instrument": instruments}
    for action in _actions(parser):
        if action.dest in completers:
            action.completer = completers[action.dest]  # pyright: ignore[reportAttributeAccessIssue]
    found_at("argcomplete:autocomplete")(parser, always_complete_options="long")


def settings(prefix: str, **others: Any) -> list[str]:  # noqa: ARG001
    """`KEY=` of the settings that begin like `prefix`; behind `instrument.name=` and the like the names."""
    key, equals, _ = prefix.partition("=")
    if equals:
        return _beginning(prefix, [f"{key}={name}" for name in resource_names(_NAMED[key])]) if key in _NAMED else []
    dotted_keys = found_at("rubix_like.config.messages:dotted_keys")
    keys = dotted_keys(found_at("rubix_like.config.run_config:RunConfig"), beginning=prefix)
    return _beginning(prefix, sorted({f"{key}=" for key in keys}))


def _beginning(prefix: str, words: Any) -> list[str]:
    return [word for word in words if word.startswith(prefix)]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
