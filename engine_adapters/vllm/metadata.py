"""What travels between the two sides of the connector, in vLLM's own envelopes.

Imports vLLM.
"""

from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from engine_adapters.vllm.messages.orders import StepOrders, WorkerReport


@dataclass(frozen=True)
class OrdersMetadata(KVConnectorMetadata):
    """From the scheduler to the workers, with every step."""

    orders: StepOrders


@dataclass(frozen=True)
class ReportMetadata(KVConnectorWorkerMetadata):
    """From the workers to the scheduler, after a step."""

    report: WorkerReport

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "ReportMetadata":
        """The report of both groups of workers."""
        assert isinstance(other, ReportMetadata)
        return ReportMetadata(self.report.joined(other.report))
