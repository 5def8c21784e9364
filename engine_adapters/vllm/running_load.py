"""A load that has not ended in all workers, as the scheduler's side sees it. Pure."""

from dataclasses import dataclass, field

from engine_adapters.vllm.lookup import Found
from engine_adapters.vllm.orders import LoadEnd
from engine_adapters.vllm.tally import Tally


@dataclass(slots=True, kw_only=True)
class RunningLoad:
    """One load of ``worker_count`` workers, which has not ended in ``workers_left`` of them.

    ``is_told``: events tell of its chunks.
    """

    request_id: str
    found: Found
    worker_count: int
    workers_left: int
    is_overtaken: bool
    is_told: bool
    _lost_chunks: set[int] = field(default_factory=set)

    def lost_keys(self, end: LoadEnd) -> list[bytes]:
        """Chain keys to tell of: of chunks that this worker is the first not to get."""
        assert self.found.chain is not None, "what is loaded was found by its chain"
        if not self.is_told:
            return []
        lost = [chunk for chunk in end.lost_chunks if chunk not in self._lost_chunks]
        self._lost_chunks.update(lost)
        return [self.found.chain.extend(())[chunk] for chunk in lost]

    def count(self, end: LoadEnd, tally: Tally, *, block_tokens: int, is_projected: bool) -> None:
        """Counts what one worker says at the end of its share."""
        tokens = end.loaded_blocks * block_tokens / self.worker_count
        byte_count = end.device_bytes + end.dram_bytes
        tally.add("load_seconds", end.duration_s)
        tally.add("load_bytes", byte_count)
        if end.lost_chunks:
            tally.add("failed_loads")
        if byte_count:
            tally.add("hit_tokens_dram", tokens * end.dram_bytes / byte_count)
            tally.add("hit_tokens_device", tokens * end.device_bytes / byte_count)
        if not self.is_overtaken:
            tally.add("restored_tokens", tokens)
        if is_projected:
            tally.add("projected_tokens", tokens)
