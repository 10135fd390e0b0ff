"""What request fields make of the form of an answer, before any engine reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support_server import Server

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"const": "ü"}}}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAYS = {
    CHAT: {"messages": [{"role": "user", "content": "turn"}]},
    TEXT: {"prompt": "turn"},
    "/v1/responses": {"input": "turn"},
    "/v1/messages": {"messages": [{"role": "user", "content": "turn"}], "max_tokens": 8},
}
STRICT = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
LOOSE = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
FLAT = {"type": "json_schema", "name": "a", "schema": SCHEMA}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
}


def ask(server: Server, route: str, **fields: Any) -> Any:
    return server.post(route, model="wheel", **SAYS[route], **fields)


@pytest.mark.parametrize(
    ("route", "fields", "kind", "content", "field"),
    [
        (CHAT, {"response_format": STRICT}, "json_schema", SCHEMA, "response_format"),
        (CHAT, {"response_format": LOOSE}, "json_schema", SCHEMA, "response_format"),
        (TEXT, {"response_format": LOOSE}, "json_schema", SCHEMA, "response_format"),
        (CHAT, {"response_format": {"type": "json_object"}}, "json_object", None, "response_format"),
        (CHAT, {"response_format": TAG}, "structural_tag", TAG, "response_format"),
        ("/v1/responses", {"text": {"format": FLAT}}, "json_schema", SCHEMA, "text.format"),
        (
            "/v1/messages",
            {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
            "json_schema",
            SCHEMA,
            "output_config.format",
        ),
    ],
)
def test_the_protocols_own_field_becomes_a_grammar(
    server: Server, route: str, fields: dict[str, Any], kind: str, content: Any, field: str
) -> None:
    assert ask(server, route, **fields).status_code == 200
    grammar = server.engine.submitted[-1].params.grammar
    assert (grammar.kind, grammar.field) == (kind, field)
    assert (json.loads(grammar.text) if grammar.text else None) == content


@pytest.mark.parametrize("route", sorted(SAYS))
@pytest.mark.parametrize(
    ("asked", "kind", "text"),
    [
        ({"json": {"type": "null"}}, "json_schema", '{"type": "null"}'),
        ({"json": '{"type": "null"}'}, "json_schema", '{"type": "null"}'),
        ({"regex": "[0-9]+"}, "regex", "[0-9]+"),
        ({"choice": ["a", "b"]}, "choice", '["a", "b"]'),
        ({"grammar": 'start: "a"'}, "lark", 'start: "a"'),
        ({"json_object": True}, "json_object", ""),
        ({"json_object": False, "regex": "a", "choice": None}, "regex", "a"),
    ],
)
def test_structured_outputs_become_a_grammar_on_every_route(
    server: Server, route: str, asked: dict[str, Any], kind: str, text: str
) -> None:
    assert ask(server, route, structured_outputs=asked).status_code == 200
    grammar = server.engine.submitted[-1].params.grammar
    assert (grammar.kind, grammar.text) == (kind, text)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a"}, "response_format": LOOSE}, "structured_outputs"),
        ({"guided_json": {"type": "null"}}, "guided_json"),
    ],
)
def test_what_cannot_be_understood_is_refused_by_name(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    answer = ask(server, CHAT, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_field_of_older_clients_is_refused_with_the_one_to_send_instead(server: Server) -> None:
    answer = ask(server, CHAT, guided_regex="[0-9]")
    assert 'Send `structured_outputs`: {"regex": ...}.' in answer.json()["error"]["message"]


def test_a_response_says_what_form_it_was_asked_for(server: Server) -> None:
    assert ask(server, "/v1/responses", text={"format": FLAT}).json()["text"] == {"format": FLAT}
