"""The command line: `noria SUBCOMMAND`."""

from __future__ import annotations

import argparse
import io
import logging
import sys
from collections.abc import Sequence

from noria import __version__
from noria.cli.command import Command, Group, HelpFormatter
from noria.cli.commands import COMMANDS
from noria.config.errors import ConfigError, NoriaError

_USAGE_STATUS = 2
_FAILURE_STATUS = 1
_INTERRUPTED_STATUS = 130

_EPILOG = """\
start here:
  noria pull smollm2         fetch the small default model (94 MiB)
  noria chat                 talk to it in this terminal
  noria serve                serve it to any OpenAI client at http://127.0.0.1:8000/v1
  noria serve MODEL --help   everything that can be set, and why
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the return value is the process's exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # models say more than some terminals can show
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    parser = _parser()
    namespace, unknown = parser.parse_known_args(arguments)
    if namespace.command is None:
        namespace.help()
        return _USAGE_STATUS
    command: Command = namespace.command
    try:
        return command.run(command.read(namespace, unknown))
    except NoriaError as error:
        print(f"noria {command.name}: {error}", file=sys.stderr)
        return _USAGE_STATUS if isinstance(error, ConfigError) else _FAILURE_STATUS
    except KeyboardInterrupt:
        print(f"noria {command.name}: interrupted", file=sys.stderr)
        return _INTERRUPTED_STATUS
    except OSError as error:
        # Whoever read the output has had enough, or there is no room for it; closing would complain once more.
        sys.stdout = None  # type: ignore[assignment]
        if not isinstance(error, BrokenPipeError):
            print(f"noria {command.name}: {error}", file=sys.stderr)
        return _FAILURE_STATUS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="noria",
        description="Noria serves open-weight language models: continuous batching over a paged KV cache, the "
        "OpenAI API, no accelerator needed.",
        epilog=_EPILOG,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"noria {__version__}")
    _add_subcommands(parser, COMMANDS)
    return parser


def _add_subcommands(parser: argparse.ArgumentParser, commands: Sequence[Command | Group]) -> None:
    parser.set_defaults(command=None, help=parser.print_help)
    subparsers = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND")
    for command in commands:
        subparser = subparsers.add_parser(
            command.name.rpartition(" ")[2],
            help=command.summary,
            description=command.description,
            epilog=command.examples,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        if isinstance(command, Group):
            _add_subcommands(subparser, command.commands)
        else:
            subparser.set_defaults(command=command)
            command.add_arguments(subparser)
