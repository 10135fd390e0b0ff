"""What a chat's tools and its reasoning ask of the prompt, of the sampler, and of whoever reads the answer."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.chats.custom import head_of, required_tree
from noria.chats.formats import Formats
from noria.chats.strict import with_strict_calls
from noria.chats.tool_use import NO_TOOLS, Choice, ToolUse
from noria.config.errors import RequestError
from noria.parsers.forced import named_schema, required_schema
from noria.parsers.formats import ReasoningFormat
from noria.parsers.reading import Calls, Reading
from noria.parsers.reasoning import Place
from noria.parsers.reply import PlainReader, TextReader
from noria.parsers.sink import MakeId
from noria.parsers.template import ResponseTemplate, text_behind
from noria.sampling.grammar import Grammar, Marker, Prologue
from noria.sampling.params import SamplingParams
from noria.tokenize.tokenizer import Tokenizer

_TAIL = 32  # tokens of a prompt in which its last marker would be
_ID_LENGTH = 24
_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Answers:
    """What a request says of its answers, whatever its protocol.

    call_prefix: how the ids of calls begin. thinking_token_budget: most tokens of reasoning, None: any number.
    """

    tools: ToolUse
    call_prefix: str = "call_"
    tells_reasoning: bool = True
    thinking_token_budget: int | None = None


PLAIN_ANSWERS = Answers(NO_TOOLS)


@dataclass(frozen=True, slots=True)
class PlannedChat:
    """A chat that is ready to be submitted, but for the bounds of its context."""

    prompt: tuple[int, ...]
    params: SamplingParams
    reading: Reading


def check_answers(answers: Answers, formats: Formats) -> None:
    """Raises RequestError for what this server or its model cannot do."""
    if answers.tools.shown and answers.tools.choice is Choice.AUTO and not formats.allows_auto:
        raise RequestError(
            "tool_choice of auto is switched off here (--no-enable-auto-tool-choice); it may be none, required, or "
            "name a function",
            param="tool_choice",
        )
    if answers.thinking_token_budget is not None and formats.reasoning is None:
        raise RequestError(
            "a budget for reasoning needs a model whose reasoning this server can tell apart (see --reasoning-parser)",
            param="thinking_token_budget",
        )


def plan_chat(
    prompt: Sequence[int], params: SamplingParams, answers: Answers, formats: Formats, tokenizer: Tokenizer
) -> PlannedChat:
    """prompt: as the chat template made it. answers: that check_answers has passed. Raises RequestError for a budget
    out of range, and for a tool's definition that is no text.
    """
    tools, reasoning = answers.tools, formats.reasoning
    place = _place(prompt, reasoning, tokenizer)
    if tools.is_forced and place is Place.REASONING and reasoning is not None:
        # An answer that is calls alone has no room for reasoning: what the template began is ended.
        prompt = [*prompt, *tokenizer.encode(f"{reasoning.end}\n\n", add_special_tokens=False)]
        place = Place.ANSWER
    params = with_strict_calls(params, tools, formats.tools)
    if not tools.is_forced and params.grammar is not None and reasoning is not None:
        params = replace(params, grammar=_behind(params.grammar, reasoning, place, formats))
    customs = frozenset(tools.customs)
    if formats.template is not None and not tools.is_forced:
        reading = _by_template(prompt, answers, formats.template, formats.special, tokenizer)
    else:
        reading = Reading(
            _reader(answers, formats),
            reasoning,
            answers.tells_reasoning,
            place,
            _shown_ids(formats, tools),
            customs=customs,
        )
    if reasoning is not None and answers.thinking_token_budget is not None:
        params = _bounded(params, answers.thinking_token_budget, reasoning, place, tokenizer)
    return PlannedChat(tuple(prompt), _forced(params, tools), reading)


def _by_template(
    prompt: Sequence[int],
    answers: Answers,
    template: ResponseTemplate,
    special: Mapping[str, int],
    tokenizer: Tokenizer,
) -> Reading:
    from noria.parsers.template_reader import TemplateReader  # most checkpoints have no template

    calls = _calls(answers, None) if answers.tools.shown else None
    begun = _begun(prompt, template, tokenizer)
    return Reading(
        customs=frozenset(answers.tools.customs),
        shown_ids=frozenset(special.values()),
        whole=lambda: TemplateReader(
            template,
            calls.sink() if calls is not None else None,
            begun,
            special.keys(),
            answers.tells_reasoning,
        ),
    )


def _begun(prompt: Sequence[int], template: ResponseTemplate, tokenizer: Tokenizer) -> str:
    """The end of a prompt from the beginning of the answer on, found without decoding much more than that."""
    size = _TAIL
    while True:
        text = tokenizer.decode(prompt[-size:], skip_special_tokens=False)
        if text_behind(text, template.anchor) is not None or size >= len(prompt):
            return text
        size *= 8


def _behind(grammar: Grammar, reasoning: ReasoningFormat, place: Place, formats: Formats) -> Grammar:
    """The form holds from where the reasoning ends."""
    if place is Place.ANSWER:
        return grammar
    begin, end = (Marker(text, formats.special.get(text)) for text in (reasoning.begin, reasoning.end))
    return replace(grammar, prologue=Prologue(begin if place is Place.START else None, end))


def _place(prompt: Sequence[int], reasoning: ReasoningFormat | None, tokenizer: Tokenizer) -> Place:
    """Where in an answer the model goes on, by how the prompt ends."""
    if reasoning is None:
        return Place.ANSWER
    text = tokenizer.decode(prompt[-_TAIL:], skip_special_tokens=False).rstrip()
    if text.endswith(reasoning.begin):
        return Place.REASONING
    return Place.ANSWER if text.endswith(reasoning.end) else Place.START


def _reader(answers: Answers, formats: Formats) -> Callable[[], TextReader]:
    tools = answers.tools
    if not tools.shown:
        return PlainReader
    calls = _calls(answers, formats.tools.id_length if formats.tools is not None else None)
    if tools.named is not None:
        return calls.named(tools.named, tools.named in tools.customs)
    if tools.choice is Choice.REQUIRED:
        heads = {head_of(name): name for name in tools.customs}
        return calls.required_or_custom(heads) if heads else calls.required()
    if formats.tools is None:
        return PlainReader
    return calls.free(formats.tools, formats.special.keys() & set(formats.tools.markers))


def _calls(answers: Answers, id_length: int | None) -> Calls:
    tools = answers.tools
    return Calls(tools.schemas, _make_id(answers.call_prefix, id_length), None if tools.is_parallel else 1)


def _make_id(prefix: str, length: int | None) -> MakeId:
    """length: all characters of an id, where the model's template wants it so."""

    def make(index: int, name: str) -> str:
        return f"{prefix}{_random(_ID_LENGTH)}" if length is None else _random(length)

    return make


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _shown_ids(formats: Formats, tools: ToolUse) -> frozenset[int]:
    """The special tokens among the markers that are looked for."""
    markers: set[str] = set()
    if formats.reasoning is not None:
        markers |= {formats.reasoning.begin, formats.reasoning.end}
    if formats.tools is not None and tools.shown and not tools.is_forced:
        markers |= set(formats.tools.markers)
    return frozenset(token_id for marker, token_id in formats.special.items() if marker in markers)


def _bounded(
    params: SamplingParams, budget: int, reasoning: ReasoningFormat, place: Place, tokenizer: Tokenizer
) -> SamplingParams:
    if place is Place.ANSWER:
        return params
    begin, end = (
        tuple(tokenizer.encode(marker, add_special_tokens=False))
        for marker in (reasoning.begin, reasoning.end)
    )
    return replace(
        params,
        thinking_token_budget=budget,
        reasoning_begin_ids=() if place is Place.REASONING else begin,
        reasoning_end_ids=end,
    )


def _forced(params: SamplingParams, tools: ToolUse) -> SamplingParams:
    if not tools.is_forced:
        return params
    customs = tools.customs
    if tools.named is not None and tools.named in customs:
        return replace(params, grammar=customs[tools.named].grammar)
    functions = {name: schema for name, schema in tools.schemas.items() if name not in customs}
    if tools.named is None and customs:
        return replace(params, grammar=required_tree(functions, customs, tools.is_parallel))
    if tools.named is not None:
        schema = named_schema(functions[tools.named])
    else:
        schema = required_schema(functions, tools.is_parallel)
    return replace(params, grammar=Grammar("json_schema", schema, "tools"))
