"""Where chunks of entries lie in the blocks of a request."""

from engine_adapters.vllm.messages.block_span import BlockCopy
from engine_adapters.vllm.messages.linked_span import LinkedSpan

SPAN = LinkedSpan(
    first_tokens=(16, 85), block_ids=tuple(range(100, 112)), chunk_blocks=4, block_tokens=16
)


def test_a_chunk_lies_in_all_blocks_that_it_touches() -> None:
    assert SPAN.chunks == range(2)
    assert SPAN.copy_of(0) == BlockCopy(0, 0, 4, (101, 102, 103, 104), 16)
    assert SPAN.copy_of(1) == BlockCopy(1, 0, 4, (105, 106, 107, 108, 109), 85)
    assert SPAN.copy_of(1).block_count == 4
    assert list(SPAN.ids_of([1, 0])) == [*range(105, 110), *range(101, 105)]
