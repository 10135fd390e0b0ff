"""Reads what is wanted of a server's Prometheus metrics, and nothing else of them."""

from __future__ import annotations

from noria.bench.target import Sample

_WANTED = {
    "vllm:kv_cache_usage_perc": "kv_util",
    "vllm:num_requests_running": "num_running",
    "vllm:num_requests_waiting": "num_waiting",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "vllm:request_queue_time_seconds_sum": "queue_wait_s",
    "vllm:request_queue_time_seconds_count": "queue_waits",
}


def sample_of(time_s: float, text: str) -> Sample | None:
    """time_s: when the text came. None where it has not even the share of KV blocks in use."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        series, _, value = line.rpartition(" ")
        name = _WANTED.get(series.partition("{")[0])
        if name is not None:
            values[name] = values.get(name, 0.0) + float(value)
    if "kv_util" not in values:
        return None
    values.setdefault("num_running", 0.0)
    values.setdefault("num_waiting", 0.0)
    return Sample(time_s=time_s, **values)
