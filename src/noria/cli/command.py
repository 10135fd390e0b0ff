"""What a subcommand is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from noria.cli.starting import no_collections
from noria.config.flags import add_flags, add_positional, from_namespace
from noria.config.unknown_flags import refuse_unknown_arguments


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of examples; leaves a column for long flags."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


@dataclass(frozen=True, slots=True)
class Group:
    """A subcommand that has subcommands of its own. name: words of all above it too, as in "bench serve"."""

    name: str
    summary: str
    description: str
    examples: str
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand whose arguments are the options of one dataclass.

    options: the dataclass. module: its `run(options)` returns the exit status. examples: shown under --help.
    """

    name: str
    summary: str
    description: str
    examples: str
    options: type
    module: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_positional(parser, self.options)
        add_flags(parser, self.options)

    def read(self, namespace: argparse.Namespace, unknown: Sequence[str]) -> Any:
        """The options of a parsed command line. Raises ConfigError."""
        refuse_unknown_arguments(self.options, unknown)
        return from_namespace(self.options, namespace)

    def run(self, options: Any) -> int:
        """Returns the exit status."""
        with no_collections():
            module = import_module(self.module)
        return module.run(options)
