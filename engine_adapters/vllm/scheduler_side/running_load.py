"""A load that has not ended in all workers, as the scheduler's side sees it. Pure."""

from dataclasses import dataclass

from engine_adapters.vllm.messages.orders import LoadEnd
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.found import Found


@dataclass(slots=True, kw_only=True)
class RunningLoad:
    """One load of ``worker_count`` workers, which has not ended in ``workers_left`` of them."""

    load_id: int
    request_id: str
    found: Found
    worker_count: int
    workers_left: int
    is_overtaken: bool
    has_failed: bool = False
    """Whether it brought less than what was found in any worker."""
    lost_chunks: tuple[int, ...] = ()
    """Those that any worker has lost."""

    def count(self, end: LoadEnd, tally: Tally, *, block_tokens: int, is_projected: bool) -> None:
        """Counts what one worker says at the end of its share."""
        tokens = end.loaded_blocks * block_tokens / self.worker_count
        byte_count = end.device_bytes + end.dram_bytes
        tally.add("load_seconds", end.duration_s / self.worker_count)
        tally.add("load_bytes", byte_count)
        self.lost_chunks += end.lost_chunks
        if end.lost_chunks and not self.has_failed:
            self.has_failed = True
            tally.add("failed_loads")
        if byte_count:
            tally.add("hit_tokens_dram", tokens * end.dram_bytes / byte_count)
            tally.add("hit_tokens_device", tokens * end.device_bytes / byte_count)
        if not self.is_overtaken:
            tally.add("restored_tokens", tokens)
        if is_projected:
            tally.add("projected_tokens", tokens)
