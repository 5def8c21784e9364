"""What the server counts, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine_adapters.runner.engine.request import Completion

TIMES_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Bounds of the buckets of times."""


class Metrics:
    """The event loop only."""

    def __init__(self, in_flight: Callable[[], int]) -> None:
        """``in_flight`` tells how many requests run or wait now."""
        self.registry = CollectorRegistry()
        self.answered = Counter(
            "kvstored_server_requests",
            "Requests by path and status of the answer",
            ["path", "status"],
            registry=self.registry,
        )
        self.disconnected = Counter(
            "kvstored_server_disconnects",
            "Requests whose client went away before the end",
            registry=self.registry,
        )
        self._tokens = Counter(
            "kvstored_server_tokens",
            "Tokens of finished requests: of prompts, restored ones of these, and new ones",
            ["kind"],
            registry=self.registry,
        )
        self._first_s = Histogram(
            "kvstored_server_first_token_seconds",
            "From the engine's queue to the first token",
            buckets=TIMES_S,
            registry=self.registry,
        )
        self._whole_s = Histogram(
            "kvstored_server_request_seconds",
            "From the engine's queue to the last token",
            buckets=TIMES_S,
            registry=self.registry,
        )
        Gauge(
            "kvstored_server_requests_in_flight",
            "Requests that run or wait",
            registry=self.registry,
        ).set_function(in_flight)

    def count(self, completion: Completion) -> None:
        """A request is finished."""
        self._tokens.labels("prompt").inc(completion.prompt_tokens)
        self._tokens.labels("restored").inc(completion.restore.restored_tokens)
        self._tokens.labels("new").inc(len(completion.generated_ids))
        self._first_s.observe(completion.ttft_s)
        self._whole_s.observe(completion.duration_s)
