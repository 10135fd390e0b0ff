"""The dashboard in docs/grafana.json asks for nothing but what the server exports, by labels that it has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support_server import FakeEngine, serving
from support_source import ROOT

DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text())
SCRAPED = {"instance", "job"}  # added by whoever scrapes
FUNCTIONS = {"sum", "max", "rate", "histogram_quantile", "by", "label_values"}
VARIABLES = {"datasource", "model", "instance", "__rate_interval"}

SERIES = re.compile(r"[a-zA-Z_:][\w:]*")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"]


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Labels by name of series."""
    with serving(FakeEngine()) as server:
        server.chat()
        text = server.get("/metrics").text
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def asked(expression: str) -> list[tuple[str, set[str]]]:
    """Each series of an expression with the labels that it is selected and grouped by."""
    grouped = {
        label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)
    }
    found = []
    for name, selector in re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", expression):
        found.append((name, set(re.findall(r"(\w+)=~?\"", selector)) | grouped))
    return found


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_series_of_an_expression_is_exported_with_its_labels(
    expression: str, exported: dict[str, set[str]]
) -> None:
    series = asked(expression)
    assert series
    for name, labels in series:
        assert name in exported
        assert labels <= exported[name] | SCRAPED, name
    # Nothing is named that is neither a series with a selector nor a function.
    bare = re.sub(r'\{[^}]*\}|by \([^)]*\)|\[[^\]]*\]|\b\d[\w.]*|"[^"]*"', " ", expression)
    assert set(SERIES.findall(bare)) <= FUNCTIONS | {name for name, _ in series}


def test_variables_are_those_that_are_used() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == VARIABLES
    assert variables == VARIABLES - {"__rate_interval"}


def test_variables_ask_for_labels_that_there_are(exported: dict[str, set[str]]) -> None:
    queries = [v["definition"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        name, label = re.fullmatch(r"label_values\(([\w:]+), (\w+)\)", query).groups()
        assert label in exported[name] | SCRAPED


def test_legends_name_labels_that_their_expression_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            grouped = set().union(*(labels for _, labels in asked(target["expr"])))
            is_whole = " by " not in target["expr"] and "sum" not in target["expr"]
            assert is_whole or named <= grouped, panel["title"]


def test_every_panel_and_every_query_has_a_place_of_its_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0


def test_the_latencies_and_the_load_that_people_watch_are_there() -> None:
    everything = " ".join(expressions())
    for name in (
        "num_requests_running",
        "num_requests_waiting_by_reason",
        "kv_cache_usage_perc",
        "num_preemptions_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket",
        "e2e_request_latency_seconds_bucket",
        "request_queue_time_seconds_bucket",
        "generation_tokens_total",
        "prompt_tokens_by_source_total",
        "prefix_cache_hits_total",
        "request_success_total",
        "admission_rejections_total",
    ):
        assert f"vllm:{name}" in everything
