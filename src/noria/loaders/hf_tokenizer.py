"""The tokenizer of a Hugging Face model directory: tokenizer.json and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noria.config.errors import ModelError
from noria.config.tokenizer import TokenizerSpec
from noria.loaders.fields import Fields, shorten
from noria.loaders.json_file import parse_object, read_optional_object, read_text

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TEMPLATE_FILE = "chat_template.jinja"
_TEMPLATE_DIRECTORY = "additional_chat_templates"


class HfTokenizer:
    """What the directory says of its tokenizer. Raises ModelError.

    special_tokens: text of the named tokens. bos_token_id, eos_token_id: None where none is named.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelError(
                f"{directory}: holds no tokenizer.json, the only kind of tokenizer file supported"
            )
        self.json = read_text(path)
        table = Fields(parse_object(self.json, str(path)), str(path))
        if not isinstance(table.values.get("model"), dict):
            raise table.fault("model", "an object")
        config_path = directory / "tokenizer_config.json"
        config = Fields(read_optional_object(config_path), str(config_path))
        map_path = directory / "special_tokens_map.json"
        special_map = Fields(read_optional_object(map_path), str(map_path))
        self.special_tokens = _special_tokens(config, special_map)
        self.bos_token_id = _find(table, self.special_tokens.get("bos_token"))
        self.eos_token_id = _find(table, self.special_tokens.get("eos_token"))
        self.chat_templates = _chat_templates(directory, config)
        self._config = config

    def spec(self, bos_token_id: int | None, eos_token_ids: tuple[int, ...]) -> TokenizerSpec:
        """bos_token_id, eos_token_ids: the model's; the tokenizer's own bos token goes first."""
        bos = bos_token_id if self.bos_token_id is None else self.bos_token_id
        response = self._config.values.get("response_template")
        return TokenizerSpec(
            tokenizer_json=self.json,
            bos_token_id=bos,
            eos_token_ids=eos_token_ids,
            # tokenizer.json says what surrounds a prompt; tokenizer_config.json's flags are for other files.
            add_bos=None,
            add_eos=None,
            special_tokens=tuple(self.special_tokens.items()),
            chat_templates=tuple(self.chat_templates.items()),
            response_template=None if response is None else json.dumps(response),
            has_response_schema=self._config.values.get("response_schema") is not None,
        )


def _special_tokens(config: Fields, special_map: Fields) -> dict[str, str]:
    texts = {}
    for name in _NAMES:
        source = config if name in config else special_map
        text = _token_text(source, name)
        if text is not None:
            texts[name] = text
    return texts


def _token_text(fields: Fields, name: str) -> str | None:
    """A token is given by its text, or by an object that has it as `content`."""
    value = fields.values.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    if value is not None and not isinstance(value, str):
        raise fields.fault(name, "a token's text, or an object with its content")
    return value


def _find(table: Fields, text: str | None) -> int | None:
    """The id of a token by its text: added tokens first, as they take part in tokenising first."""
    if text is None:
        return None
    for token in _list(table, "added_tokens"):
        if isinstance(token, dict) and token.get("content") == text:
            return _checked_id(token.get("id"), text, table)
    model = Fields(table.values["model"], f"{table.source}: model")
    vocabulary = model.values.get("vocab")
    if isinstance(vocabulary, dict):
        found = vocabulary.get(text)
        return None if found is None else _checked_id(found, text, table)
    for token_id, entry in enumerate(_list(model, "vocab")):  # [text, score] each
        if isinstance(entry, list) and entry and entry[0] == text:
            return token_id
    return None


def _list(fields: Fields, key: str) -> list:
    value = fields.values.get(key)
    if value is not None and not isinstance(value, list):
        raise fields.fault(key, "a list")
    return value or []


def _checked_id(value: Any, text: str, table: Fields) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ModelError(
            f"{table.source}: the id of token {shorten(text)} must be 0 or above, found {shorten(value)}"
        )
    return value


def _chat_templates(directory: Path, config: Fields) -> dict[str, str]:
    """Files of their own go before those inside tokenizer_config.json."""
    templates = _configured_templates(config)
    default = directory / _TEMPLATE_FILE
    if default.is_file():
        templates["default"] = read_text(default)
    for path in sorted((directory / _TEMPLATE_DIRECTORY).glob("*.jinja")):
        templates[path.stem] = read_text(path)
    return templates


def _configured_templates(config: Fields) -> dict[str, str]:
    """One template, or a list of objects with a name and a template."""
    value = config.values.get("chat_template")
    if value is None:
        return {}
    entries = [{"name": "default", "template": value}] if isinstance(value, str) else value
    templates = {}
    for entry in entries if isinstance(entries, list) else [None]:
        name = entry.get("name") if isinstance(entry, dict) else None
        template = entry.get("template") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(template, str):
            raise config.fault("chat_template", "a string, or a list of objects with a name and a template")
        templates[name] = template
    return templates
