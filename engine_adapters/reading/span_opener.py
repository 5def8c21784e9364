"""Takes room in the arena for the next span of a reader."""

from collections.abc import Sequence

from engine_adapters.reading.piece import Piece
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.read_policy import ReadPolicy
from engine_adapters.reading.section import (
    Section,
    bands_of,
    sections_from,
    sections_of,
    sections_of_layers,
)
from engine_adapters.reading.slice_format import SliceFormat
from engine_adapters.reading.span import Span
from kvstored_client import Client


class SpanOpener:
    """Opens one span after the other, each as large as there is room for. One thread only."""

    def __init__(self, client: Client, slice_format: SliceFormat, options: ReadOptions) -> None:
        self._client = client
        self._format = slice_format
        self._options = options
        sections = options.sections
        self._sections = sections_of(slice_format.layout) if sections is None else sections

    @property
    def may_find_room(self) -> bool:
        """Whether the arena will have room for one piece when others give theirs back."""
        # A client without a session has no arena until something connects it again.
        return self._bytes_of(1) <= self._client.region_bytes_max and self._client.epoch != 0

    def policy_of(self, stretches: Sequence[range]) -> ReadPolicy:
        """How these stretches of pieces are cut into spans."""
        options = self._options
        span_chunks = options.span_chunks
        bands: Sequence[range] = ()
        if options.is_layer_wise and (chunk_count := sum(map(len, stretches))):
            bands, span_chunks = bands_of(
                self._sections, chunk_count=chunk_count, byte_count=self._bytes_of(span_chunks)
            )
        return ReadPolicy(
            stretches,
            span_chunks=span_chunks,
            first_chunks=options.first_chunks,
            from_end=options.from_end,
            bands=bands,
            spans_in_flight=options.spans_in_flight,
        )

    def held_bytes(self, policy: ReadPolicy) -> int:
        """What reading all that a policy has not taken yet holds at once."""
        chunks_max = self._options.spans_in_flight * self._options.span_chunks
        return self._format.held_bytes(min(chunks_max, policy.chunk_count))

    def open(self, policy: ReadPolicy, pieces: Sequence[Piece], *, connects: bool) -> Span | None:
        """The next span of ``pieces``, or as much of it as there is room for; None for none.

        No read of it is started. A client without a session gets one if it ``connects``.
        """
        while True:
            sections = self._sections_of(policy)
            chunk_count = len(policy.next_span())
            byte_count = sum(section.region_bytes(chunk_count) for section in sections)
            region = self._client.allocate(byte_count, connects=connects)
            if region is not None:
                break
            if not policy.refuse():
                return None
        chunks = policy.take()
        try:
            return Span(
                self._client,
                self._format,
                region,
                pieces=pieces[chunks.start : chunks.stop],
                first_chunk=chunks.start,
                order=self._options.order,
                sections=sections,
                window_bytes=self._options.window_bytes,
            )
        except BaseException:
            region.release()
            raise

    def _sections_of(self, policy: ReadPolicy) -> tuple[Section, ...]:
        """Those of the next span."""
        if policy.layers is not None:
            return sections_of_layers(self._sections, policy.layers)
        return sections_from(self._sections, self._options.first_layer())

    def _bytes_of(self, chunk_count: int) -> int:
        return sum(section.region_bytes(chunk_count) for section in self._sections)
