"""Settings in a file: JSON always, YAML where a parser for it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noria.config.errors import ConfigError


def read_config_file(path: str) -> dict[str, Any]:
    """The mapping in a .json, .yaml or .yml file. Raises ConfigError naming the file and the fault."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config file {path}: {error}") from None
    parse = _parse_json if path.lower().endswith(".json") else _parse_yaml
    content = parse(text, path)
    if content is None:  # an empty YAML file
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"the config file {path} must hold a mapping of settings, got a {type(content).__name__}"
        )
    return content


def _parse_json(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"the config file {path} is not valid JSON: {error}") from None


def _parse_yaml(text: str, path: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise ConfigError(
            f"reading the config file {path} takes the package PyYAML, which is not installed; "
            "install it, or write the file as JSON with a name that ends in .json"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file {path} is not valid YAML: {error}") from None
