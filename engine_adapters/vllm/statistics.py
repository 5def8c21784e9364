"""The adapter's counters as vLLM's connector stats and Prometheus metrics. Imports vLLM."""

from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from engine_adapters.vllm.messages.tally import COUNTERS, joined

PREFIX = "vllm:kvstored_"


@dataclass
class KvstoredStats(KVConnectorStats):
    """Counts by name, of any number of workers and of the scheduler."""

    def reset(self) -> None:
        """Counts from zero."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> "KvstoredStats":
        """The sums of both."""
        return KvstoredStats(data=dict(joined(self.data, other.data)))

    def reduce(self) -> dict[str, int | float]:
        """What the log of an interval shows."""
        return {name: round(count, 3) for name, count in self.data.items()}

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class KvstoredPromMetrics(KVConnectorPromMetrics):
    """One counter ``vllm:kvstored_NAME`` for each of ours, by engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {}
        for name, meaning in COUNTERS.items():
            counter = metric_types[Counter](
                name=PREFIX + name, documentation=f"{meaning}.", labelnames=labelnames
            )
            for engine, values in per_engine_labelvalues.items():
                self._counters[engine, name] = counter.labels(*values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Adds what was counted in one interval."""
        for name, count in transfer_stats_data.items():
            self._counters[engine_idx, name].inc(count)
