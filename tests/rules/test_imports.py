"""The rooms keep to their import table, and the rooms that promise to be light are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support_import_rules import ROOMS, violations
from support_source import PACKAGE, ROOT, Source, sources


def test_every_source_keeps_to_the_import_table() -> None:
    assert [violation for source in sources() for violation in violations(source)] == []


def test_every_row_of_the_table_is_about_something_that_exists() -> None:
    assert [name for name in ROOMS if not (PACKAGE / name).exists()] == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("config/asked.py", "import noria.core.plan"),
        ("config/asked.py", "import numpy"),
        ("config/asked.py", "def f():\n    from rich import print"),
        ("core/kv.py", "import numpy as np"),
        ("core/kv.py", "from noria.engine.loop import EngineLoop"),
        ("core/kv.py", "from noria import runner"),
        ("core/kv.py", "from noria.sampling import sampler"),
        ("core/kv.py", "from ..runner import runner"),
        ("core/kv.py", "if TYPE_CHECKING:\n    import numpy"),
        ("core/scheduler.py", "import time"),
        ("core/scheduler.py", "from datetime import datetime as now"),
        ("core/scheduler.py", "from importlib import import_module\nimport_module('noria.server.app')"),
        ("engine/loop.py", "def f():\n    from time import monotonic"),
        ("engine/loop.py", "from noria.runner.runner import ModelRunner"),
        ("engine/build.py", "from noria.server.app import make_app"),
        ("runner/runner.py", "from noria.core.scheduler import Scheduler"),
        ("runner/runner.py", "import torch"),
        ("runner/runner.py", "if typing.TYPE_CHECKING:\n    from noria.server import app"),
        ("models/llama.py", "from noria.kernels.select import load_backend"),
        ("models/llama.py", "import safetensors.numpy"),
        ("models/llama.py", "from noria.loaders.checkpoint import Checkpoint"),
        ("kernels/ops.py", "import torch.nn"),
        ("kernels/torch_ops/ops.py", "import triton"),
        ("kernels/torch_ops/ops.py", "from noria.models.model import Model"),
        ("loaders/pull.py", "from noria.models.names import NAMES"),
        ("server/app.py", "from noria.engine.loop import EngineLoop"),
        ("server/app.py", "__import__('torch')"),
        ("offline/llm.py", "from noria.runner.runner import ModelRunner"),
        ("cli/serve.py", "if TYPE_CHECKING:\n    import torch"),
        ("brand_new_room/thing.py", "x = 1"),
    ],
)
def test_a_forbidden_import_is_found_however_it_is_written(path: str, code: str) -> None:
    assert len(violations(Source(path, code))) == 1


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("config/files.py", "def f():\n    import yaml, json"),
        (
            "core/kv.py",
            "from noria.core.blocks import BlockPool\nfrom . import plan\nfrom .queue import Queue",
        ),
        ("core/kv.py", "from noria.sampling.params import SamplingParams\nfrom noria.config import engine"),
        ("core/kv.py", "if TYPE_CHECKING:\n    from noria.engine.client import Sink"),
        ("core/clock.py", "import time"),
        ("engine/build.py", "from noria.runner.runner import ModelRunner"),
        ("kernels/torch_ops/ops.py", "import torch"),
        (
            "server/app.py",
            "import time\nfrom starlette.requests import Request\nfrom noria import __version__",
        ),
        (
            "cli/serve.py",
            "from noria.server.app import make_app\nfrom noria.engine.build import start_engine",
        ),
        ("__init__.py", "from noria.offline.llm import LLM"),
    ],
)
def test_an_allowed_import_is_let_through(path: str, code: str) -> None:
    assert violations(Source(path, code)) == []


def loaded_by(modules: list[str]) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after importing `modules`."""
    lines = [f"import {module}" for module in modules]
    lines += ["import sys", "print(*sorted({name.split('.')[0] for name in sys.modules}))"]
    answer = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    return set(answer.stdout.split())


def modules_of(*rooms: str) -> list[str]:
    paths = [f"noria/{source.path}" for source in sources() if source.room in rooms]
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]
    return [name for name in names if name != "noria.__main__"]


def test_the_package_its_settings_and_its_core_load_no_package_at_all() -> None:
    loaded = loaded_by(["noria", *modules_of("config", "core")])
    assert loaded.isdisjoint({"torch", "numpy", "yaml", "starlette", "pydantic", "tokenizers", "rich"})


def test_nothing_but_the_torch_kernels_loads_torch() -> None:
    loaded = loaded_by(["noria", *modules_of(*(room for room in ROOMS if room != "kernels"), "")])
    assert "torch" not in loaded
    assert "noria" in loaded
