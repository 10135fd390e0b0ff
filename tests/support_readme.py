"""The commands of a README, run as they are written, in a folder of their own and without touching the interpreter."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LIMIT_S = 900
# What a README's words mean here: this interpreter, this source, packages put into a folder.
_COMMANDS = {"python": "", "pip": "-m pip", "noria": "-m noria"}


def commands_of(readme: Path) -> list[str]:
    """The blocks of shell commands, in order."""
    return re.findall(r"^```bash\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run_readme(example: str, directory: Path) -> str:
    """Run the commands of examples/EXAMPLE/README.md in a copy of examples; what they print. Asserts that all work."""
    shutil.copytree(ROOT / "examples", directory / "examples")
    return run_script(
        "\n".join(commands_of(directory / "examples" / example / "README.md")), directory, _LIMIT_S
    )


def run_script(script: str, directory: Path, limit_s: float) -> str:
    """What the commands print. Asserts that all work, within `limit_s`; what they leave running is ended."""
    log = directory / "output.txt"
    with log.open("w", encoding="utf-8") as output:
        shell = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=directory,
            env=_environment(directory),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = shell.wait(limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    told = log.read_text(encoding="utf-8")
    assert status == 0, told
    return told


def _environment(directory: Path) -> dict[str, str]:
    programs, site = directory / "bin", directory / "site"
    programs.mkdir()
    for name, arguments in _COMMANDS.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        program.chmod(0o755)
    paths = [str(site), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it so: 0 switches the isolation off
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
