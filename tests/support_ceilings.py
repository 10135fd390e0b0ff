"""The size ceilings of functions, classes and files, and how a source is measured.

What is counted:

- a function's lines from `def` to its end, docstring included, decorators not; a function inside counts too
- its parameters but for self and cls; *args and **kwargs are one each
- nesting: the deepest stack of if, for, while, with, try and match in its body; an elif is no deeper than its
  if, and a function or class inside starts anew
- a class's attributes: what its methods assign to self, and the fields of a dataclass that is not frozen. Frozen
  dataclasses, named tuples, enums, protocols and pydantic models are data: they have no state to keep track of
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from support_source import Source

MAX_FILE_LINES = 400


@dataclass(frozen=True)
class Ceilings:
    function_lines: int = 60
    parameters: int = 7
    nesting: int = 3
    attributes: int = 12


_CEILINGS = Ceilings()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_DATA_BASES = ("NamedTuple", "Enum", "Protocol", "BaseModel")


def file_excess(source: Source) -> list[str]:
    """A sentence when the file is longer than it may be."""
    num_lines = len(source.text.splitlines())
    return (
        [f"{source.path}: {num_lines} lines, at most {MAX_FILE_LINES}"] if num_lines > MAX_FILE_LINES else []
    )


def code_excess(source: Source, ceilings: Ceilings = _CEILINGS) -> list[str]:
    """A sentence for every function and class that is above a ceiling."""
    found = []
    for node in ast.walk(source.tree):
        measures: list[tuple[str, int, int]] = []
        if isinstance(node, _FUNCTIONS):
            measures = [
                ("lines", num_lines(node), ceilings.function_lines),
                ("parameters", num_parameters(node), ceilings.parameters),
                ("levels of nesting", nesting(node), ceilings.nesting),
            ]
        elif isinstance(node, ast.ClassDef):
            measures = [("attributes", len(attributes(node)), ceilings.attributes)]
        for what, value, most in measures:
            if value > most:
                found.append(f"{source.path}:{node.lineno} {node.name}: {value} {what}, at most {most}")
    return found


def num_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def num_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    if named and named[0].arg in ("self", "cls"):
        named = named[1:]
    stars = [star for star in (arguments.vararg, arguments.kwarg) if star]
    return len(named) + len(arguments.kwonlyargs) + len(stars)


def nesting(node: ast.AST) -> int:
    """Levels of blocks below `node`, itself not counted."""
    deepest = 0
    for child in _children(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        deepest = max(deepest, nesting(child) + isinstance(child, _BLOCKS))
    return deepest


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The children, an elif's own in place of the elif."""
    is_elif = isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
    for child in ast.iter_child_nodes(node):
        if is_elif and child is node.orelse[0]:  # type: ignore[attr-defined]
            yield from _children(child)
        else:
            yield child


def attributes(node: ast.ClassDef) -> set[str]:
    names = {
        target.attr
        for inner in ast.walk(node)
        for target in _targets(inner)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }
    if _is_dataclass(node):
        names |= {
            inner.target.id
            for inner in node.body
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
        }
    return set() if _is_data(node) else names


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    else:
        targets = []
    return [part for target in targets for part in _parts(target)]


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def _is_data(node: ast.ClassDef) -> bool:
    frozen = any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases]
    return frozen or any(base in _DATA_BASES for base in bases)
