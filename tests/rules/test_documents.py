"""README.md and docs/ lead where they say they do, and name nothing that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.cli.commands import COMMANDS
from noria.config.flags import flags_of
from noria.config.option import settings_of
from support_source import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
# Those that tell of benchmarks/, whose programs have flags of their own.
MEASURED = ("accuracy.md", "benchmarks.md", "performance.md")
FLAGS_OF_OTHERS = {"--silent", "--fail"}  # of curl

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, heading) of links that stay here; either may be empty."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            path, _, heading = target.partition("#")
            yield path, heading


def headings(page: Path) -> set[str]:
    """As links call them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    for path, heading in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not heading or heading in headings(target), f"{path}#{heading}"


def known_flags() -> set[str]:
    found = {"--help", "--version", "--config"}
    for entry in COMMANDS:
        for command in getattr(entry, "commands", (entry,)):
            for setting in settings_of(command.options):
                found |= {
                    form for flag in flags_of(setting) for form in (flag, flag.replace("--", "--no-", 1))
                }
    return found


@every_page
def test_every_flag_that_is_named_is_there(page: Path) -> None:
    if page.name in MEASURED:
        return
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", page.read_text(encoding="utf-8")))
    assert named - known_flags() - FLAGS_OF_OTHERS == set()


def subcommands() -> set[str]:
    return {command.name for entry in COMMANDS for command in (entry, *getattr(entry, "commands", ()))}


@every_page
def test_every_subcommand_that_is_named_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?:^ {4}|`)noria ([a-z]+)(?: ([a-z][a-z-]+))?", text, re.MULTILINE)
    groups = {entry.name for entry in COMMANDS if hasattr(entry, "commands")}
    names = {f"{first} {second}" if first in groups and second else first for first, second in named}
    assert names - subcommands() == set()
