"""Which room may import what: the table, and how a source is held against it.

An import under `if TYPE_CHECKING` ties no room to another when the program runs, so it is held against `never`
alone: what a room must not even know by name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from support_source import Source

EVERYTHING = ("noria",)
STANDARD_LIBRARY: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """may: modules of Noria besides the own room's. never: modules of anybody. outside: packages besides the
    standard library, None for any. A module stands for all below it.
    """

    why: str
    may: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    outside: tuple[str, ...] | None = None


_CONFIG = "noria.config"
_PARAMS = (
    "noria.sampling.params",
    "noria.sampling.grammar",
    "noria.sampling.defaults",
    "noria.sampling.rule",
    "noria.sampling.structures",
    "noria.sampling.validate",
)
_PLAIN_CORE = ("noria.core.plan", "noria.core.outputs")

ROOMS = {
    "config": Row(
        "read by everything, must load in milliseconds",
        outside=("yaml",),  # where it is installed, inside the function that reads such a file
    ),
    "core": Row(
        "runs a million steps in a simulator and a second in tests",
        may=(_CONFIG, "noria.sampling.params"),
        never=("numpy", "noria.runner", "noria.models", "noria.server"),
        outside=STANDARD_LIBRARY,
    ),
    "engine": Row(
        "one loop for live, test and simulated runs",
        may=("noria.core", _CONFIG, *_PARAMS, "noria.structured.api"),
    ),
    "engine/build.py": Row(
        "the one place that sees concrete classes",
        may=(
            "noria.core",
            _CONFIG,
            "noria.sampling.params",
            "noria.kernels",
            "noria.loaders",
            "noria.models",
            "noria.rules",
            "noria.runner",
            "noria.structured",
        ),
    ),
    "engine/opening.py": Row(
        "finds and checks files",
        may=(_CONFIG, "noria.loaders"),
    ),
    "runner": Row(
        "the runner obeys plans, never makes them",
        may=(*_PLAIN_CORE, _CONFIG, "noria.models", "noria.kernels", "noria.sampling", "noria.loaders"),
        never=("noria.core.scheduler", "noria.server"),
    ),
    "models": Row(
        "anyone can add a model by adding one file",
        may=("noria.kernels.ops", "noria.kernels.batch", _CONFIG),
        never=("noria.core", "noria.runner", "noria.loaders", "safetensors", "gguf"),
    ),
    "kernels": Row(
        "backends are interchangeable and tested by one suite",
        may=(_CONFIG, "noria.sampling", "noria.core.plan"),
    ),
    "inspecting": Row(
        "looks into a model without an engine",
        may=(_CONFIG, "noria.kernels", "noria.models"),
        never=("noria.core", "noria.engine", "noria.server"),
    ),
    "rules": Row(
        "decoding rules of a user, each in a process of its own",
        may=(_CONFIG, "noria.sampling", "noria.tokenize", "noria.structured.api"),
        never=("noria.core.scheduler", "noria.runner", "noria.models", "noria.server"),
    ),
    "loaders": Row("name maps belong to the model", may=(_CONFIG,), never=("noria.models", "noria.runner")),
    "sampling": Row("usable on any logits, from any room", may=("noria.core.plan", _CONFIG)),
    "structured": Row(
        "asked by the loop, and by nobody else",
        may=(*_PLAIN_CORE, _CONFIG, "noria.sampling", "noria.tokenize"),
        never=("noria.core.scheduler", "noria.runner", "noria.models", "noria.server"),
    ),
    "tokenize": Row("text and token ids, no engine", may=(_CONFIG, "noria.sampling.params")),
    "parsers": Row(
        "text in, parts out, whoever wrote the text",
        may=(_CONFIG,),
        outside=(
            "regex",
        ),  # where it is installed, inside the function that compiles a checkpoint's patterns
    ),
    "chats": Row(
        "what a chat's tools and reasoning ask of prompt, sampler and reader, whoever holds the chat",
        may=(_CONFIG, *_PARAMS, "noria.parsers", "noria.tokenize"),
        outside=STANDARD_LIBRARY,
    ),
    "server": Row(
        "tested with a fake engine",
        may=(
            "noria.engine.client",
            "noria.engine.crowd",
            "noria.engine.heartbeat",
            "noria.engine.messages",
            "noria.engine.orders",
            "noria.engine.records",
            *_PLAIN_CORE,
            _CONFIG,
            "noria.tokenize",
            "noria.chats",
            "noria.parsers",
            *_PARAMS,
        ),
        never=("noria.core.scheduler", "noria.runner", "noria.models"),
    ),
    "bench": Row(
        "measures any server; knows of the engine what its clients do",
        may=(
            "noria.engine.client",
            "noria.engine.messages",
            *_PLAIN_CORE,
            _CONFIG,
            "noria.tokenize",
            *_PARAMS,
        ),
        never=("noria.core.scheduler", "noria.runner", "noria.models", "noria.server"),
    ),
    "offline": Row(
        "a user of the engine like the server, without the web",
        may=(
            "noria.engine",
            *_PLAIN_CORE,
            "noria.core.acceptance",
            _CONFIG,
            "noria.tokenize",
            "noria.chats",
            "noria.parsers",
            *_PARAMS,
        ),
        never=("noria.core.scheduler", "noria.runner", "noria.models", "noria.server"),
    ),
    "capacity": Row(
        "the real scheduler, a priced runner",
        may=(
            "noria.core",
            _CONFIG,
            "noria.bench.outcome",
            "noria.bench.pieces",
            "noria.bench.play",
            "noria.bench.target",
            "noria.engine.client",
            "noria.engine.intake",
            "noria.engine.making",
            "noria.engine.messages",
            "noria.engine.records",
            "noria.engine.run_log",
            "noria.sampling.params",
        ),
        never=("noria.runner", "noria.models", "noria.kernels", "noria.server"),
        outside=("msgspec", "numpy", "scipy"),
    ),
    "tuning": Row(
        "a user of measuring and of simulating",
        may=("noria.bench", "noria.capacity", _CONFIG, "noria.core.outputs", "noria.engine.messages"),
        never=("noria.core.scheduler", "noria.runner", "noria.models", "noria.kernels", "noria.server"),
        outside=("numpy", "orjson", "scipy", "uvloop"),
    ),
    "cli": Row("puts everything together", may=EVERYTHING),
    "": Row("the package's front", may=EVERYTHING),
}

# The only folders that may import a package, whatever their room may otherwise.
CONFINED = {"torch": "kernels/torch_ops/", "triton": "kernels/triton/"}

# Time is told to these by a clock that is given to them, so that a simulation can run them.
CLOCKLESS = ("core/", "engine/loop.py")
CLOCK = "core/clock.py"
_TIME_MODULES = ("time", "datetime")


@dataclass(frozen=True)
class Import:
    """name: module and what is taken from it, `noria.core.plan.Work`."""

    name: str
    line: int
    is_for_types: bool

    def is_below(self, modules: tuple[str, ...]) -> bool:
        return any(f"{self.name}.".startswith(f"{module}.") for module in modules)


def violations(source: Source) -> list[str]:
    """What a source imports against the table, a sentence each."""
    row = ROOMS.get(source.path) or ROOMS.get(source.room)
    if row is None:
        return [f"{source.path}: the room {source.room!r} has no row in the import table"]
    found = []
    for item in imports(source):
        fault = _fault(item, source, row)
        if fault:
            found.append(f"{source.path}:{item.line} imports {item.name}: {fault}")
    return found


def _fault(item: Import, source: Source, row: Row) -> str:
    if item.is_below(row.never):
        return f"forbidden here, even for types ({row.why})"
    for package, folder in CONFINED.items():
        if item.is_below((package,)) and not source.path.startswith(folder):
            return f"allowed in {folder} alone"
    is_clockless = source.path.startswith(CLOCKLESS) and source.path != CLOCK
    if is_clockless and item.is_below(_TIME_MODULES):
        return "the time comes from the clock that is given"
    if item.is_for_types or _is_standard(item):
        return ""
    if item.is_below(EVERYTHING):
        own = (f"noria.{source.room}", "noria.__version__")
        return "" if item.is_below((*own, *row.may)) else f"not in the row of its room ({row.why})"
    if row.outside is not None and not item.is_below(row.outside):
        return f"a package outside the standard library ({row.why})"
    return ""


def _is_standard(item: Import) -> bool:
    return item.name.split(".")[0] in sys.stdlib_module_names


def imports(source: Source) -> Iterator[Import]:
    """Every import of a source, wherever it stands, those by `import_module("...")` included."""
    tree = source.tree
    type_lines = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _is_type_checking(node.test)
        for inner in node.body
        for line in range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
    }
    for node in ast.walk(tree):
        for name in _names(node, source):
            yield Import(name, node.lineno, node.lineno in type_lines)  # type: ignore[attr-defined]


def _names(node: ast.AST, source: Source) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = _absolute(node, source)
        return [f"{module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and _called(node.func) in ("import_module", "__import__") and node.args:
        argument = node.args[0]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return [argument.value]
    return []


def _absolute(node: ast.ImportFrom, source: Source) -> str:
    if not node.level:
        return node.module or ""
    package = ["noria", *source.path.split("/")[:-1]]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
