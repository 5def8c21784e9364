"""The readers that one restorer has begun: they share an arena and are ended together."""

from collections.abc import Sequence

from engine_adapters.runner.arena_share import ArenaShare
from engine_adapters.runner.span_reader import SpanReader
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order


class Readers:
    """Begins one reader for each history. One thread only.

    ``order``, ``span_chunks``, ``timeout_s`` and ``from_end`` are those of ``SpanReader``.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        *,
        order: Order,
        span_chunks: int,
        timeout_s: float,
        from_end: bool = False,
    ) -> None:
        self._client = client
        self._format = state_format
        self._order = order
        self._span_chunks = span_chunks
        self._timeout_s = timeout_s
        self._from_end = from_end
        self._share = ArenaShare.of_client(client)
        self._begun: list[SpanReader] = []

    def begin(self, token_ids: Sequence[int]) -> SpanReader | None:
        """A reader of the history of ``token_ids``; None where nothing can be stored of it.

        The last token is never restored: its logits are what the request wants. Of less than
        a chunk nothing is stored.
        """
        if len(token_ids) <= self._format.layout.chunk_tokens:
            return None
        reader = SpanReader(
            self._client,
            self._format,
            self._share,
            token_ids[:-1],
            order=self._order,
            span_chunks=self._span_chunks,
            timeout_s=self._timeout_s,
            from_end=self._from_end,
        )
        self._begun = [*(each for each in self._begun if each.is_running), reader]
        return reader

    def close(self) -> None:
        """Ends all readers and waits until they hold nothing any more."""
        for reader in self._begun:
            reader.close()
        for reader in self._begun:
            reader.join()
        self._begun = []
