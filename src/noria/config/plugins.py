"""What installed packages add to Noria: entry points, in one table with what is built in.

A package states in its pyproject.toml, and is imported only when the name is asked for:

    [project.entry-points."noria.models"]
    WheelForCausalLM = "wheel.model:Wheel"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from noria.config.errors import NoriaError, PluginError

MODELS_GROUP = "noria.models"
SAMPLERS_GROUP = "noria.samplers"
TOOL_PARSERS_GROUP = "noria.tool_parsers"


@dataclass(frozen=True, slots=True)
class Entry:
    """A name and the object that it stands for. distribution: who adds it, with its version; "" for Noria itself."""

    group: str
    name: str
    target: str  # module:attribute
    distribution: str = ""

    @property
    def where(self) -> str:
        """For messages."""
        return (
            f"the entry point {self.name} = {self.target!r} ({self.group}) of {self.distribution or 'noria'}"
        )

    def load(self) -> Any:
        """Import it. Raises PluginError for whatever goes wrong."""
        with self.blamed():
            module, _, attributes = self.target.partition(":")
            found: Any = import_module(module)
            for attribute in filter(None, attributes.split(".")):
                found = getattr(found, attribute)
            return found

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What an installed package's code raises within, other than Noria's own errors, becomes a PluginError."""
        try:
            yield
        except NoriaError:
            raise
        except (Exception, SystemExit) as error:
            if not self.distribution:
                raise
            raise PluginError(f"{self.where} failed: {type(error).__name__}: {error}") from error


class Table:
    """The entries of one group. A built-in name is never another's: what is installed adds, and replaces nothing."""

    def __init__(self, group: str, built_in: Mapping[str, str]) -> None:
        self.group = group
        self._built_in = {name: Entry(group, name, target) for name, target in built_in.items()}

    def entries(self) -> list[Entry]:
        """All, the built-in ones first; one that is shadowed by a built-in name or by its like included."""
        return [*self._built_in.values(), *installed(self.group)]

    def names(self) -> list[str]:
        return list(dict.fromkeys(entry.name for entry in self.entries()))

    def find(self, name: str) -> Entry | None:
        """Raises PluginError where two packages add the name."""
        if name in self._built_in:
            return self._built_in[name]
        found = [entry for entry in installed(self.group) if entry.name == name]
        if len(found) > 1:
            owners = " and ".join(entry.distribution for entry in found)
            raise PluginError(f"{name} ({self.group}) is added by {owners}: uninstall all but one of them")
        return found[0] if found else None

    def fault(self, entry: Entry) -> str | None:
        """Why an entry cannot be used, or None. Imports it."""
        if entry.distribution and entry.name in self._built_in:
            return "the name is built in; choose another"
        try:
            self.find(entry.name)
            entry.load()
        except PluginError as error:
            return str(error)
        return None


def installed(group: str) -> list[Entry]:
    """What installed packages add to a group, by name and then by package."""
    found = {_entry(point) for point in entry_points(group=group)}
    return sorted(found, key=lambda entry: (entry.name, entry.distribution))


def _entry(point: EntryPoint) -> Entry:
    owner = point.dist
    distribution = f"{owner.name} {owner.version}" if owner is not None else "an unnamed package"
    return Entry(point.group, point.name, point.value, distribution)
