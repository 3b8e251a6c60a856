"""Registries of plug-ins: built-in members by import path, members from outside by entry point."""

import functools
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from rubix_like.errors import ConfigError, or_install, suggest
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of


@dataclass(frozen=True)
class Registry:
    """Named members of one kind; a member is imported only when it is asked for.

    `builtin` maps a name to `"module:attribute"`. Other distributions add members through the entry-point group
    `group`; a built-in name cannot be taken over. `needs` are the attributes that a member from outside must have.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]
    needs: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        """Whether there is a member called `name`; installed distributions are asked only where no built-in one is."""
        return name in self.builtin or name in plug_in_names(self.group)

    def names(self) -> tuple[str, ...]:
        """All names: the built-in ones first, in their order, then those from entry points."""
        return tuple(self.builtin) + tuple(name for name in plug_in_names(self.group) if name not in self.builtin)

    def check(self, name: str) -> None:
        """Raise ConfigError with the nearest known name if there is no member called `name`; imports none."""
        if name not in self:
            raise ConfigError(f"unknown {self.kind} '{name}'{or_install(suggest(name, self.names()))}")

    def find(self, name: str) -> Any:
        """The member called `name`; raises ConfigError with the nearest known name if there is none.

        A member from outside that cannot be imported, or that is no member of this kind, is a ConfigError that names
        its distribution.
        """
        self.check(name)
        if name in self.builtin:
            return found_at(self.builtin[name])
        member = load_plug_in(self.kind, self.group, name)
        lacking = [need for need in self.needs if getattr(member, need, None) is None]
        if lacking:
            raise ConfigError(
                f"{plug_in_place(self.kind, self.group, name)}: expected something with "
                f"{' and '.join(self.needs)}, got {member!r}; set {' and '.join(lacking)}, now None or missing "
                f"(docs/how-to-extend.md)"
            )
        return member

    def hidden(self, names: Iterable[str]) -> tuple[str, ...]:
        """Sentences on members from outside that have the name of a built-in one, and so are left out, among some."""
        announced = set(plug_in_names(self.group)) & self.builtin.keys()
        return tuple(
            Note(
                "registry.name_taken",
                f"{plug_in_place(self.kind, self.group, name)} is left out, as that name is built in and cannot be "
                f"taken over; announce it by another",
                WARNING,
            )
            for name in dict.fromkeys(names)
            if name in announced
        )

    def faults(self) -> dict[str, str]:
        """Why members from outside cannot be used, by name; the built-in ones are not imported."""
        found: dict[str, str] = {}
        for name in self.names()[len(self.builtin) :]:
            try:
                self.find(name)
            except ConfigError as error:
                found[name] = str(error)
        return found

    def usable_names(self) -> tuple[str, ...]:
        """All names but those of members from outside that cannot be used."""
        faults = self.faults()
        return tuple(name for name in self.names() if name not in faults)


def plug_in_names(group: str) -> tuple[str, ...]:
    """The names that installed distributions announce in an entry-point group, each once."""
    return tuple(dict.fromkeys(entry.name for entry in _installed(group)))


def load_plug_in(kind: str, group: str, name: str) -> Any:
    """Import the member of an entry point; raises ConfigError, naming the distribution, where that fails."""
    entries = _announced(group, name)
    if len(entries) > 1:
        owners = " and ".join(sorted(map(_owner, entries)))
        raise ConfigError(f"{kind} '{name}': expected one distribution to announce it, got {owners}; uninstall one")
    try:
        return entries[0].load()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{plug_in_place(kind, group, name)}: '{entries[0].value}' cannot be imported "
            f"({type(error).__name__}: {error}); repair or uninstall {_owner(entries[0])}"
        ) from error


def plug_in_place(kind: str, group: str, name: str) -> str:
    """The words for a member from outside in an error: its kind, name and distribution."""
    return f"{kind} '{name}' of the installed package {_owner(_announced(group, name)[0])}"


def failed_plug_in(error: BaseException) -> str | None:
    """The words for the package from outside whose code raised the error; None where it is none of a plug-in."""
    places = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if places[-1:] == ["rubix_like.runtime.exit_codes"]:  # the end that a signal asked for
        return None
    every = entry_points()
    groups = [every.select(group=group) for group in every.groups if group.startswith("rubix_like.")]
    modules = {entry.module.partition(".")[0]: _owner(entry) for group in groups for entry in group}
    modules.pop("rubix_like", None)  # a bug of ours is none of a plug-in
    found = [modules[place.partition(".")[0]] for place in places if place.partition(".")[0] in modules]
    return found[-1] if found else None


def plug_in_failed(plug_in: str, error: BaseException) -> str:
    """The sentence on a plug-in that raised an error which is no refusal."""
    return (
        f"the plug-in {plug_in} failed: {type(error).__name__}: {reason_of(error)}; report it to its authors, with "
        f"what rubix-like --traceback prints, or leave the plug-in out"
    )


@contextmanager
def exits_as_errors() -> Iterator[None]:
    """Turns the SystemExit of a plug-in, which would end the user's program in silence, into a ConfigError."""
    try:
        yield
    except SystemExit as error:
        plug_in = failed_plug_in(error)
        if plug_in is None:
            raise
        raise ConfigError(plug_in_failed(plug_in, error)) from error


def _announced(group: str, name: str) -> list[EntryPoint]:
    return list(_installed(group).select(name=name))


def _installed(group: str) -> EntryPoints:
    """The entry points of a group, looked for again only after the folders of packages have changed."""
    return _entry_points(group, tuple((place, _changed(place)) for place in sys.path))


@functools.lru_cache
def _entry_points(group: str, _folders: tuple[tuple[str, int | None], ...]) -> EntryPoints:
    return entry_points(group=group)


def _changed(place: str) -> int | None:
    """When a folder last got or lost a file, in ns; None where there is none."""
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return None


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "(unknown)"
