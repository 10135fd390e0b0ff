"""Nothing grows beyond the size that a reader can hold; of tests, whose length is their data, only files."""

from __future__ import annotations

import pytest

from support_ceilings import MAX_FILE_LINES, Source, code_excess, file_excess
from support_source import ROOT, sources


def test_every_source_keeps_below_the_ceilings() -> None:
    found = [excess for source in sources() for excess in (*file_excess(source), *code_excess(source))]
    assert found == []


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_every_other_file_keeps_below_its_ceiling(folder: str) -> None:
    assert [excess for source in sources(ROOT / folder) for excess in file_excess(source)] == []


def function(body: str, head: str = "def f():") -> str:
    return head + "\n" + "".join(f"    {line}\n" for line in body.splitlines())


def excess_of(code: str) -> list[str]:
    return [line.split(": ")[1] for line in code_excess(Source("room/made_up.py", code))]


def test_a_file_is_measured_in_lines() -> None:
    assert file_excess(Source("a.py", "\n" * MAX_FILE_LINES)) == []
    assert file_excess(Source("a.py", "\n" * MAX_FILE_LINES + "x")) == ["a.py: 401 lines, at most 400"]


@pytest.mark.parametrize("head", ["def f():", "async def f():", "@decorator\ndef f():"])
def test_a_function_is_measured_from_its_def_to_its_end(head: str) -> None:
    assert excess_of(function("pass\n" * 59, head)) == []
    assert excess_of(function("pass\n" * 60, head)) == ["61 lines, at most 60"]


@pytest.mark.parametrize(
    ("parameters", "count"),
    [
        ("a, b, c, d, e, f, g", 7),
        ("self, a, b, c, d, e, f, g", 7),
        ("cls, a, b, c, d, e, f, g, h", 8),
        ("a, b, /, c, d, *, e, f, g, h", 8),
        ("a, b, c, d, e, f, *args, **kwargs", 8),
    ],
)
def test_every_kind_of_parameter_counts_but_self(parameters: str, count: int) -> None:
    expected = [f"{count} parameters, at most 7"] if count > 7 else []
    assert excess_of(f"def f({parameters}): pass") == expected


FOUR_DEEP = "for a in b:\n while a:\n  with a:\n   try:\n    a()\n   finally:\n    b()"
ELIFS = "if a:\n pass\nelif b:\n pass\nelif c:\n pass\nelif d:\n pass"
ELSE_IF = "if a:\n pass\nelse:\n x = 1\n if b:\n  for c in d:\n   if e:\n    pass"
IN_ELIF = "if a:\n pass\nelif b:\n for c in d:\n  for e in f:\n   if g:\n    pass"
INNER = "if a:\n for b in c:\n  def g():\n   for d in e:\n    if f:\n     pass"
MATCH = "match a:\n case 1:\n  if b:\n   for c in d:\n    while e:\n     pass"


@pytest.mark.parametrize(
    ("body", "depth"),
    [(FOUR_DEEP, 4), (ELIFS, 1), (ELSE_IF, 4), (IN_ELIF, 4), (INNER, 2), (MATCH, 4)],
)
def test_nesting_counts_blocks_and_no_elif(body: str, depth: int) -> None:
    expected = [f"{depth} levels of nesting, at most 3"] if depth > 3 else []
    assert excess_of(function(body)) == expected


def test_a_class_counts_what_its_methods_assign_to_self() -> None:
    names = [f"a{i}" for i in range(12)]
    assigned = "\n".join(f"self.{name} = 0" for name in names)
    unpacked = "self.a0, (self.a1, *self.a2) = 1, (2, 3)"
    body = function(assigned, "def __init__(self):") + function(unpacked, "def g(self):")
    assert excess_of(function(body, "class C:")) == []
    body += function("x, self.extra = 1, 2\nself.a1 += 1\nself.other: int = 3", "def h(self):")
    assert excess_of(function(body, "class C:")) == ["14 attributes, at most 12"]


FIELDS = "\n".join(f"a{i}: int = 0" for i in range(13))


@pytest.mark.parametrize("head", ["@dataclass\nclass C:", "@dataclass(slots=True)\nclass C:"])
def test_a_changing_dataclass_counts_its_fields(head: str) -> None:
    assert excess_of(function(FIELDS, head)) == ["13 attributes, at most 12"]


@pytest.mark.parametrize(
    "head",
    ["@dataclass(frozen=True)\nclass C:", "class C(NamedTuple):", "class C(pydantic.BaseModel):", "class C:"],
)
def test_data_has_no_state_to_count(head: str) -> None:
    assert excess_of(function(FIELDS, head)) == []
