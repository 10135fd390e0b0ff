"""The examples do what their READMEs say, command by command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support_readme import run_readme

pytestmark = pytest.mark.timeout(1000)  # a command after the other, each of which starts anew


def test_an_architecture_of_one_s_own(tmp_path: Path) -> None:
    told = run_readme("custom_architecture", tmp_path)
    assert "LoopedForCausalLM" in told
    assert "no op differs by more than 0.0001 of its reference" in told  # from the torch module
    assert "no op differs by more than 0.01 of its reference" in told  # native from reference ops


def test_ranking_over_a_closed_set(tmp_path: Path) -> None:
    told = run_readme("catalog_ranking", tmp_path)
    assert "CatalogForCausalLM" in told
    rankings = re.findall(r"^after .*:\n((?:  .*\n)+)", told, re.MULTILINE)
    assert [{line.split()[0] for line in ranking.splitlines()} for ranking in rankings] == [
        {"jazz"},
        {"opera"},
    ]
    for ranking in rankings:
        scores = [float(line.split()[-1]) for line in ranking.splitlines()]
        assert len(scores) == 5 and scores == sorted(scores, reverse=True)


def test_decoding_rules_of_one_s_own(tmp_path: Path) -> None:
    told = run_readme("decoding_rule", tmp_path)
    assert "no-repeat-ngram: " in told
    assert "refused: the decoding rule 'no-repeat-ngram' refuses its arguments" in told
    (num_tokens,) = re.findall(r"'wind-down'.*: (\d+) tokens, stop", told)
    assert 20 < int(num_tokens) < 60
