"""Which chunks of a request a step completes, and the order to save them."""

from dataclasses import replace

from engine_adapters.vllm.messages.engine_request import BlockTables
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.request_track import RequestTrack
from engine_adapters.vllm.scheduler_side.telling import Telling


class Saving:
    """The saves of one engine. Not thread-safe.

    ``is_on`` is False for engines that only read.
    """

    def __init__(self, *, is_on: bool, block_tokens: int, tally: Tally, telling: Telling) -> None:
        self._is_on = is_on
        self._block_tokens = block_tokens
        self._tally = tally
        self._telling = telling

    def orders(
        self, track: RequestTrack, computed_tokens: int, block_tables: BlockTables
    ) -> list[SaveOrder]:
        """Orders for what is complete when ``computed_tokens`` are, and was not saved before."""
        request = track.request
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
        return [replace(order, notes=self._telling.notes(track, chunks))]
