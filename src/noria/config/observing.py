"""What a user may ask of what the server tells about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.option import PATH, SWITCH, check_values, option


@dataclass(frozen=True, slots=True)
class ObservingOptions:
    """Metrics are always there, at /metrics; to OpenTelemetry they are sent, as traces are, where that is asked for."""

    TITLE: ClassVar[str] = "Metrics and traces"

    legacy_metrics: bool = option(
        False,
        "Export some metrics under the names that they had in older servers too: gpu_cache_usage_perc, "
        "time_per_output_token_seconds, gpu_prefix_cache_queries, gpu_prefix_cache_hits. For dashboards that still "
        "ask for them.",
        SWITCH,
    )
    otlp_traces_endpoint: str | None = option(
        None,
        "Address that takes OpenTelemetry traces over HTTP, as http://127.0.0.1:4318/v1/traces; a span for each "
        "request that generates or asks for embeddings goes there, without any text. Needs noria[otel]; OTEL_* "
        "settings hold.",
        default_words="no traces",
    )
    otlp_metrics_endpoint: str | None = option(
        None,
        "Address that takes OpenTelemetry metrics over HTTP, as http://127.0.0.1:4318/v1/metrics; the histograms "
        "gen_ai.server.request.duration, .time_to_first_token and .time_per_output_token go there every minute "
        "(OTEL_METRIC_EXPORT_INTERVAL, in ms). Needs noria[otel]; OTEL_* settings hold.",
        default_words="none are sent",
    )
    run_log: str | None = option(
        None,
        "File that takes down every step and every request as JSON lines, without any token or text: what noria "
        "simulate replays and noria calibrate learns from. An engine that was restarted writes FILE.2, FILE.3, ...",
        PATH,
        default_words="nothing is taken down",
    )

    @property
    def is_traced(self) -> bool:
        """Whether something is told of each request."""
        return self.otlp_traces_endpoint is not None or self.otlp_metrics_endpoint is not None

    def __post_init__(self) -> None:
        check_values(self)
