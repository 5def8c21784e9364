"""Which chunks of a request a step completes, and the order to save them. Pure."""

from engine_adapters.vllm.chunk_events import ChunkEvents
from engine_adapters.vllm.engine_request import BlockTables, EngineRequest
from engine_adapters.vllm.orders import SaveOrder
from engine_adapters.vllm.request_track import RequestTrack
from engine_adapters.vllm.tally import Tally


class Saving:
    """The saves of one engine. Not thread-safe.

    ``is_on`` is False for engines that only read.
    """

    def __init__(
        self, *, is_on: bool, block_tokens: int, tally: Tally, events: ChunkEvents
    ) -> None:
        self._is_on = is_on
        self._block_tokens = block_tokens
        self._tally = tally
        self._events = events

    def orders(
        self,
        request: EngineRequest,
        track: RequestTrack,
        computed_tokens: int,
        block_tables: BlockTables,
    ) -> list[SaveOrder]:
        """Orders for what is complete when ``computed_tokens`` are, and was not saved before."""
        chunks = track.chunks_to_save(
            computed_tokens=computed_tokens, known_tokens=request.num_tokens
        )
        if not chunks:
            return []
        track.saved_chunks = chunks.stop
        if not self._is_on:
            return []
        if track.chain is None:
            # Without a daemon that takes the layouts there is no key to store anything under.
            self._tally.add("dropped_saves", len(chunks))
            return []
        order = SaveOrder.of(
            request.request_id,
            chunks,
            chain_keys=track.chain.extend(request.all_token_ids),
            block_ids=block_tables.ids_of(request.request_id),
            chunk_blocks=track.chunk_tokens // self._block_tokens,
        )
        if track.identity.is_told:
            first, stop = chunks.start * track.chunk_tokens, chunks.stop * track.chunk_tokens
            self._events.ordered(
                order.chain_keys,
                order.parent_key,
                request.all_token_ids[first:stop],
                adapter_name=request.lora_request.lora_name if request.lora_request else "",
            )
        return [order]
