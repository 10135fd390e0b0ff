"""`import noria` and the command line's help are quick because of what they do not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = "import sys\nfrom noria.cli.main import main\ntry: main({arguments})\nexcept SystemExit: pass\n"
LOADED = "\nimport sys; sys.stderr.write(' '.join(sorted(set(sys.modules) - before)))"


def loaded_by(code: str) -> set[str]:
    """The modules that the code loads beyond those of an interpreter that has just started."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; before = set(sys.modules)\n" + code + LOADED],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_importing_noria_loads_one_module_of_its_own_and_some_of_the_standard_library() -> None:
    loaded = loaded_by("import noria")
    assert {name for name in loaded if name.split(".")[0] == "noria"} == {"noria"}
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names == {"noria"}
    assert len(loaded) < 50, loaded


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["serve", "--help"], ["chat", "--help"]])
def test_help_and_version_load_nothing_that_was_installed_beside_noria(arguments: list[str]) -> None:
    loaded = loaded_by(COMMAND.format(arguments=arguments))
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names == {"noria"}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("noria.")}
    assert rooms <= {"cli", "config", "loaders"}, rooms
