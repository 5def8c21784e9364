"""Reads of a history of which nothing is made: what the store side of a restoration takes."""

import time
from collections.abc import Sequence

from benchmarks.benchmark import BenchmarkError
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order

TIMEOUT_S = 60.0


def read_s(client: Client, state_format: StateFormat, token_ids: Sequence[int]) -> float:
    """Seconds of all layers, in spans as a restoration has; raises BenchmarkError."""
    layout = state_format.layout
    started_s = time.perf_counter()
    keys = client.prefix_keys(layout, token_ids)
    reader = SpanReader(
        client,
        state_format,
        known(pieces_of(keys, chunk_tokens=layout.chunk_tokens)),
        ReadOptions(
            order=Order.LAYER_FIRST, span_chunks=RestoreOptions().span_chunks(state_format)
        ),
        remaining_s=lambda: TIMEOUT_S,
    )
    try:
        while (span := reader.first()) is not None:
            for layer in range(layout.layer_count):
                reader.advance()
                if span.wait_layer(layer, TIMEOUT_S) < span.chunk_count:
                    raise BenchmarkError("a chunk was lost while it was read")
            reader.give_back(span)
    finally:
        reader.close()
    return time.perf_counter() - started_s
