"""The Jinja dialect of chat templates: what transformers gives them, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from noria.tokenize.messages import ContentFormat


class TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """{% generation %} ... {% endgeneration %} marks the assistant's words for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def build_environment(now: Callable[[], datetime]) -> ImmutableSandboxedEnvironment:
    """now: the time that the template function strftime_now tells."""

    def refuse(message: str) -> None:
        raise TemplateRefusal(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter would escape for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    template: jinja2.Template
    content_format: ContentFormat
    takes_tools: bool

    @classmethod
    def of(cls, environment: jinja2.Environment, source: str) -> CompiledTemplate:
        """Raises jinja2.TemplateSyntaxError, and whatever else the compiler meets."""
        tree = environment.parse(source)
        content_format = _read_content_format(tree)  # before compiling, which may rewrite the tree
        takes_tools = any(name.name == "tools" for name in tree.find_all(nodes.Name))
        return cls(environment.from_string(tree), content_format, takes_tools)

    def render(self, variables: Mapping[str, Any], max_characters: int) -> str | None:
        """The output; None once it is longer than max_characters."""
        parts: list[str] = []
        num_characters = 0
        for part in self.template.generate(variables):
            parts.append(part)
            num_characters += len(part)
            if num_characters > max_characters:
                return None
        return "".join(parts)


def _read_content_format(tree: nodes.Template) -> ContentFormat:
    """Does the template loop over a message's content (then it takes parts), and does it ask for strings?"""
    names = {"content", *_names_of_content(tree)}
    loops = any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    if not loops:
        return ContentFormat.TEXT
    asks = any(test.name == "string" for test in tree.find_all(nodes.Test))
    return ContentFormat.EITHER if asks else ContentFormat.PARTS


def _names_of_content(tree: nodes.Template) -> Iterator[str]:
    """Variables that the template sets to a message's content."""
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, set()):
            yield assignment.target.name


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """message.content, message['content'], or a variable of these names."""
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name in names
