"""Grammars in the words of llguidance, and what is wrong with those that it cannot follow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from noria.sampling.grammar import MAX_TEXT, Prologue
from noria.sampling.structures import are_texts, tree_of
from noria.structured.ebnf_lark import lark_of_ebnf
from noria.structured.faults import GrammarFault
from noria.structured.prologues import beginning_not, tree_with_prologue, with_prologue
from noria.structured.repeats import check_lark, check_regex, check_schema, is_ebnf
from noria.structured.tag_tree import TagTree

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

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
            tree = tree_of(text)
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
    if not choices or not are_texts(choices):
        raise GrammarFault(f"choices are a list of at least one string, got {text:.100}")
    # One terminal: as alternatives of a rule, a few thousand are more than can be followed.
    texts = " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)
    return LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}")


def _read_lark(text: str) -> str:
    text = lark_of_ebnf(text) if is_ebnf(text) else text
    check_lark(text)
    return LLMatcher.grammar_from_lark(text)


_READERS = {
    "json_schema": _read_schema,
    "json_object": _read_object,
    "regex": _read_regex,
    "choice": _read_choice,
    "lark": _read_lark,
}
