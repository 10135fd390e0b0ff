"""`noria plugins`: architectures, decoding rules and formats of tool calls, and which of them cannot be used."""

from __future__ import annotations

import json

from noria.cli.commands import PluginsCommandOptions
from noria.config.plugins import Entry, Table
from noria.models.registry import MODELS
from noria.parsers.registry import TOOL_PARSERS
from noria.rules.table import SAMPLERS

_TABLES = (MODELS, SAMPLERS, TOOL_PARSERS)


def run(options: PluginsCommandOptions) -> int:
    """1 where something that is installed cannot be used."""
    found = [(table, entry, table.fault(entry)) for table in _TABLES for entry in table.entries()]
    if options.plugins.json:
        print(json.dumps([_as_json(entry, fault) for _, entry, fault in found]))
    else:
        _print(found)
    return int(any(fault is not None for _, _, fault in found))


def _as_json(entry: Entry, fault: str | None) -> dict[str, str | None]:
    return {
        "group": entry.group,
        "name": entry.name,
        "target": entry.target,
        "distribution": entry.distribution or "noria",
        "fault": fault,
    }


def _print(found: list[tuple[Table, Entry, str | None]]) -> None:
    width = max(len(entry.name) for _, entry, _ in found)
    for table in _TABLES:
        print(table.group)
        entries = [(entry, fault) for owner, entry, fault in found if owner is table]
        for entry, fault in entries:
            origin = entry.distribution or "built in"
            print(f"  {entry.name:<{width}}  {origin}  {entry.target}")
            if fault is not None:
                print(f"  {'':<{width}}  cannot be used: {fault}")
        if not entries:
            print("  none")
