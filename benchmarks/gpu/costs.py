"""What one layer of a model costs on the device, and how fast the store gives it."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.restore import CostProfile, Sample, Source
from engine_adapters.runner.calibrate.compute_costs import ComputeTimer
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import SPAN_TOKENS
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, shape_of

REPEATS = 3
SPAN_PARTS = (4, 2, 1)
"""Projections and copies are timed for a span, and for these parts of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCosts:
    """Times of one layer by tokens; the store's side is not among them."""

    compute: tuple[Sample, ...]
    project: tuple[Sample, ...]
    load: tuple[Sample, ...]
    hidden_bytes: int
    kv_bytes: int

    @classmethod
    def measured(
        cls, model: Model, token_counts: Sequence[int], *, step_tokens: int
    ) -> "DeviceCosts":
        """Of histories of those lengths; projections span after span, as a restorer does them."""
        timer = ComputeTimer(model, repeats=REPEATS)
        longest = max(token_counts)
        spans = [max(CHUNK_TOKENS, min(longest, SPAN_TOKENS) // part) for part in SPAN_PARTS]
        shape = shape_of(model)
        return cls(
            compute=tuple(timer.recompute(list(token_counts), step_tokens=step_tokens)),
            project=tuple(timer.project(spans)),
            load=tuple(timer.load(spans, chunk_tokens=CHUNK_TOKENS)),
            hidden_bytes=shape.hidden_bytes,
            kv_bytes=shape.kv_bytes,
        )

    def at_rate(self, bytes_per_s: float) -> CostProfile:
        """Where the store gives exactly so many bytes per second."""
        byte_count = SPAN_TOKENS * self.kv_bytes
        return self.with_reads([Sample(byte_count, byte_count / bytes_per_s)])

    def with_reads(self, reads: Sequence[Sample]) -> CostProfile:
        """Where the store was seen to give so many bytes of a layer in those times."""
        return CostProfile.fitted(
            model="benchmark",
            machine="benchmark",
            measured_at_s=1.0,
            hidden_bytes=self.hidden_bytes,
            kv_bytes=self.kv_bytes,
            compute=self.compute,
            project=self.project,
            load=self.load,
            read=reads,
        )

    def token_bytes(self, source: Source) -> int:
        """Of one token in one layer."""
        return self.hidden_bytes if source is Source.HIDDEN else self.kv_bytes
