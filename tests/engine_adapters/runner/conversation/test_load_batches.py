from engine_adapters.conversation.history import make_cut
from engine_adapters.conversation.usable_states import usable_states
from engine_adapters.runner.conversation.load_batches import (
    LoadBatch,
    chunks_of,
    load_batches,
    token_count_of,
)

CHUNK_TOKENS = 4
CUT = make_cut((), 18, (range(1), range(2, 3), range(5, 6), range(8, 18)))
PIECES = usable_states([CUT], [True] * 6, stop=22, chunk_tokens=CHUNK_TOKENS).pieces


def test_whole_chunks_that_follow_are_loaded_at_once_and_others_alone() -> None:
    assert chunks_of(PIECES) == (0, 1, 2, 3, 4, 5)
    assert list(load_batches(PIECES, range(6), chunk_tokens=CHUNK_TOKENS)) == [
        LoadBatch(0, 1, 0, 1, 0),
        LoadBatch(0, 1, 2, 1, 1),
        LoadBatch(1, 1, 1, 1, 2),
        LoadBatch(2, 3, 0, 4, 3),
        LoadBatch(5, 1, 0, 2, 15),
    ]


def test_only_the_tokens_of_the_window_count() -> None:
    assert [token_count_of(PIECES, range(chunk, chunk + 1)) for chunk in range(6)] == [
        2,
        1,
        4,
        4,
        4,
        2,
    ]
    assert token_count_of(PIECES, range(6)) == 17
    assert token_count_of(PIECES, range(0)) == 0


def test_a_span_has_its_own_chunks_only() -> None:
    """Numbers are those among the chunks that are read, which leave dropped ones out."""
    pieces = usable_states(
        [make_cut((), 12, (range(1), range(8, 12)))], [True] * 4, stop=16, chunk_tokens=CHUNK_TOKENS
    ).pieces
    assert chunks_of(pieces) == (0, 2, 3)
    assert list(load_batches(pieces, range(2, 3), chunk_tokens=CHUNK_TOKENS)) == [
        LoadBatch(2, 1, 0, 4, 5)
    ]
    batches = list(load_batches(pieces, range(1, 3), chunk_tokens=CHUNK_TOKENS))
    assert batches == [LoadBatch(1, 2, 0, 4, 1)]
    assert batches[0].token_count == 8
    assert list(load_batches(pieces, range(0), chunk_tokens=CHUNK_TOKENS)) == []
