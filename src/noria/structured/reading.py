"""Grammars in the words of llguidance, and what is wrong with those that it cannot follow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from noria.sampling.grammar import Prologue
from noria.structured.faults import GrammarFault
from noria.structured.prologues import beginning_not, tree_with_prologue, with_prologue
from noria.structured.repeats import check_lark, check_regex, check_schema
from noria.structured.tag_members import refuse_others
from noria.structured.tag_tree import TagTree

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_TEXT = 1 << 20  # characters of a grammar
STRUCTURAL_TAG = "structural_tag"
_MAX_WORDS = 300  # characters of what is told of a fault

# Between the parts of a JSON text: enough for indentation, and no room for a model that loses itself in spaces.
_JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,20}"}
_NO_TOKENS: Mapping[str, int] = MappingProxyType({})
_LIMITS = LLParserLimits(max_lexer_states=50_000, verbose_errors=False)


def compile_grammar(vocabulary: LLTokenizer, source: str) -> LLMatcher:
    """A matcher at the grammar's beginning. source: from `source_of`. Raises GrammarFault."""
    matcher = LLMatcher(vocabulary, source, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()  # the first step of one that can produce nothing is its last
    if matcher.is_error():
        raise GrammarFault(fault_of(matcher))
    return matcher


def source_of(
    kind: str,
    text: str,
    prologue: Prologue | None = None,
    begins_not: str = "",
    special: Mapping[str, int] = _NO_TOKENS,
) -> str:
    """A grammar in llguidance's words. kind, text, prologue, begins_not: as in sampling.grammar. special: ids of the
    special tokens that an output may hold, by their text. Raises GrammarFault.
    """
    if len(text) > MAX_TEXT:
        raise GrammarFault(f"it has {len(text)} characters; at most {MAX_TEXT} are read")
    try:
        if kind == STRUCTURAL_TAG:
            tree = _tree_of(text)
            tree = beginning_not(tree, begins_not) if begins_not else tree
            tree = tree if prologue is None else tree_with_prologue(tree, prologue)
            return TagTree(special, _JSON_OPTIONS).source(tree)
        source = _READERS[kind](text)
        return source if prologue is None else with_prologue(source, prologue)
    except (GrammarFault, MemoryError):
        raise
    except Exception as error:  # whatever text of a stranger's makes it raise
        raise GrammarFault(str(error)[:_MAX_WORDS] or type(error).__name__) from None


def fault_of(matcher: LLMatcher) -> str:
    """What ended a matcher, in a few words."""
    first, *_ = matcher.get_error().split("<state>")
    words = " ".join(first.split())
    if words.startswith("NoExtension"):
        return "it allows no text"
    return words[:_MAX_WORDS]


def without_place(words: str) -> str:
    """What is told of a fault, without where it is and what stands there: for who did not write the grammar."""
    return re.sub(r"^at \d+\(\d+\): | \d+ \| .*", "", words)


def _read_schema(text: str) -> str:
    schema = json.loads(text)
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise GrammarFault(f"a JSON schema is an object, got {text:.100}")
    check_schema(schema)
    return LLMatcher.grammar_from_json_schema(text if schema else "{}", defaults=_JSON_OPTIONS)


def _read_object(text: str) -> str:
    return _read_schema('{"type": "object"}')


def _read_regex(text: str) -> str:
    if not text:
        raise GrammarFault("it is empty, and so would be the output")
    check_regex(text)
    return LLMatcher.grammar_from_regex(text)


def _read_choice(text: str) -> str:
    choices = json.loads(text)
    if not choices or not _are_texts(choices):
        raise GrammarFault(f"choices are a list of at least one string, got {text:.100}")
    return LLMatcher.grammar_from_lark(
        "start: " + " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)
    )


def _read_lark(text: str) -> str:
    check_lark(text)
    return LLMatcher.grammar_from_lark(text)


def _tree_of(text: str) -> Any:
    """{"format": a tree of formats}, or free text, in which a trigger begins a structure: {"structures": [{begin,
    schema, end}], "triggers": [...]}.
    """
    asked: Any = json.loads(text)
    asked = asked if isinstance(asked, dict) else {}
    if "format" not in asked:
        return _free_with_structures(asked)
    refuse_others(asked, ("type", "format"), STRUCTURAL_TAG)
    return asked["format"]


def _free_with_structures(asked: Mapping[str, Any]) -> dict[str, Any]:
    structures: Any = asked.get("structures")
    triggers: Any = asked.get("triggers")
    if not structures or not isinstance(structures, list) or not _are_texts(triggers):
        raise GrammarFault("it needs `structures`, a list of objects, and `triggers`, a list of strings")
    refuse_others(asked, ("type", "structures", "triggers"), STRUCTURAL_TAG)
    tags = [_structure(one, triggers) for one in structures]
    return {"type": "triggered_tags", "triggers": triggers, "tags": tags}


def _structure(asked: Any, triggers: list[str]) -> dict[str, Any]:
    if not isinstance(asked, dict) or not _are_texts([asked.get("begin"), asked.get("end")]):
        raise GrammarFault(
            "a structure is an object with the strings `begin` and `end` and an object `schema`"
        )
    refuse_others(asked, ("begin", "schema", "end"), "a structure")
    schema, begin = asked.get("schema"), asked["begin"]
    if not isinstance(schema, dict):
        raise GrammarFault(f"the structure that begins with {begin!r:.100} needs an object `schema`")
    if not any(one and begin.startswith(one) for one in triggers):
        raise GrammarFault(f"no trigger begins the structure that begins with {begin!r:.100}")
    content = {"type": "json_schema", "json_schema": schema}
    return {"type": "tag", "begin": begin, "content": content, "end": asked["end"]}


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(one, str) for one in values)


_READERS = {
    "json_schema": _read_schema,
    "json_object": _read_object,
    "regex": _read_regex,
    "choice": _read_choice,
    "lark": _read_lark,
}
