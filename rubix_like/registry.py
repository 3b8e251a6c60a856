"""Registries of plug-ins: built-in members by import path, members from outside by entry point."""

import importlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rubix_like.errors import ConfigError, suggest


@dataclass(frozen=True)
class Registry:
    """Named members of one kind; a member is imported only when it is asked for.

    `builtin` maps a name to `"module:attribute"`. Other distributions add members through the entry-point group
    `group`; a built-in name cannot be taken over.
    """

    kind: str
    group: str
    builtin: Mapping[str, str]

    def names(self) -> tuple[str, ...]:
        """All names: the built-in ones first, in their order, then those from entry points."""
        return tuple(self.builtin) + tuple(name for name in self._plugins() if name not in self.builtin)

    def find(self, name: str) -> Any:
        """The member called `name`; raises ConfigError with the nearest known name if there is none."""
        if name in self.builtin:
            module, attribute = self.builtin[name].split(":")
            return operator.attrgetter(attribute)(importlib.import_module(module))
        plugins = self._plugins()
        if name not in plugins:
            raise ConfigError(f"unknown {self.kind} '{name}'{suggest(name, self.names())}")
        return plugins[name].load()

    def _plugins(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}
