"""Settings on the command line, over environment, over config file, over an operating point, over defaults."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from noria.config.errors import ConfigError
from noria.config.files import read_config_file
from noria.config.option import SWITCH, Setting, Several, settings_of
from noria.config.parse import Given, build, given_by_mapping

T = TypeVar("T")

_CONFIG = "config"
_CONFIG_ENVIRONMENT = "NORIA_CONFIG"
_POSITIONAL = "{}_positional"

# For a service named "noria" Kubernetes puts NORIA_PORT=tcp://10.0.0.1:8000 into every container.
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")


def add_flags(parser: argparse.ArgumentParser, cls: type) -> None:
    """Give `parser` the flags of a group of options, and `--config`.

    What the user did not write leaves no trace in the namespace. Make the parser with allow_abbrev=False: an
    abbreviation that works today is ambiguous once a flag is added.
    """
    parser.add_argument(
        "--config",
        dest=_CONFIG,
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="Read settings from a YAML or JSON file; keys are flags without the dashes. A flag wins over the "
        f"environment, the environment over the file. [environment: {_CONFIG_ENVIRONMENT}]",
    )
    sections: dict[str, Any] = {}
    for setting in settings_of(cls):
        if setting.title not in sections:
            sections[setting.title] = parser.add_argument_group(setting.title)
        _add_flag(sections[setting.title], setting)


def add_positional(parser: argparse.ArgumentParser, cls: type) -> None:
    """Let `parser` also take, as optional arguments without a flag, the options that allow it (the model)."""
    for setting in settings_of(cls):
        if setting.about.positional:
            parser.add_argument(
                _POSITIONAL.format(setting.name),
                metavar=setting.name.upper(),
                nargs="?" if setting.about.several is Several.NO else "*",
                default=argparse.SUPPRESS,
                help=f"The same as {setting.flag}.",
            )


def from_namespace(cls: type[T], namespace: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> T:
    """The options of what was parsed by flags of `add_flags`: flag > environment > config file > operating
    point > default.

    Raises ConfigError for wrong values and for unknown keys in the config file.
    """
    given: dict[str, Given] = {}
    path = getattr(namespace, _CONFIG, None) or environ.get(_CONFIG_ENVIRONMENT)
    if path:
        given.update(given_by_mapping(cls, read_config_file(path), path))
    given.update(given_by_environment(cls, environ))
    given.update(_given_by_flags(cls, namespace))
    if "operating_point" in given:
        from noria.config.operating_point import over_operating_point  # seldom used

        given = over_operating_point(cls, given)
    return build(cls, given)


def given_by_environment(cls: type, environ: Mapping[str, str]) -> dict[str, Given]:
    """Field name -> value, of NORIA_* variables and the foreign ones that stand in for them."""
    given = {}
    for setting in settings_of(cls):
        for variable in (setting.environment, *setting.about.fallbacks):
            text = environ.get(variable, "")
            if not text or _SERVICE_LINK.match(text):
                continue
            raw = text if setting.about.several is Several.NO else text.split(",")
            given[setting.name] = Given(raw, f"{variable} (environment)")
            break
    return given


def environment_names(cls: type) -> frozenset[str]:
    """Every variable that `from_namespace` may read for a group of options."""
    names = (name for setting in settings_of(cls) for name in (setting.environment, *setting.about.fallbacks))
    return frozenset({_CONFIG_ENVIRONMENT, *names})


def _given_by_flags(cls: type, namespace: argparse.Namespace) -> dict[str, Given]:
    given = {}
    for setting in settings_of(cls):
        if hasattr(namespace, setting.name):
            given[setting.name] = Given(getattr(namespace, setting.name), setting.flag)
        positional = getattr(namespace, _POSITIONAL.format(setting.name), None)
        if positional is None:
            continue
        if setting.name in given and given[setting.name].raw != positional:
            raise ConfigError(
                f"{setting.name} is given twice: {positional!r} and "
                f"{setting.flag} {given[setting.name].raw!r}; keep one of them"
            )
        given[setting.name] = Given(positional, setting.name.upper())
    return given


def _add_flag(section: Any, setting: Setting) -> None:
    about = setting.about
    details: dict[str, Any] = {
        "dest": setting.name,
        "default": argparse.SUPPRESS,
        "help": flag_help(setting).replace("%", "%%"),
    }
    if about.kind is SWITCH:
        details["action"] = argparse.BooleanOptionalAction
    else:
        details["metavar"] = (
            "{" + ",".join(map(str, about.choices)) + "}" if about.choices else about.kind.metavar
        )
    if about.several is Several.REPEATED:
        details["action"] = "append"
    elif about.several is Several.SPREAD:
        details |= {"action": "extend", "nargs": "+"}
    section.add_argument(*flags_of(setting), **details)


def flag_help(setting: Setting) -> str:
    variables = ", ".join((setting.environment, *setting.about.fallbacks))
    return f"{setting.about.help} [default: {default_words(setting)}; environment: {variables}]"


def default_words(setting: Setting) -> str:
    """The default, as a person would say it."""
    if setting.about.default_words:
        return setting.about.default_words
    if isinstance(setting.default, bool):
        return "on" if setting.default else "off"
    return f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)


def flags_of(setting: Setting) -> tuple[str, ...]:
    """Every spelling, the main one first."""
    return (setting.flag, *setting.about.aliases)
