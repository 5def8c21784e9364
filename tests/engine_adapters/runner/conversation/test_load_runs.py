from engine_adapters.conversation.history import make_cut
from engine_adapters.conversation.usable_states import usable_states
from engine_adapters.runner.conversation.load_runs import LoadRun, chunks_of, load_runs

CHUNK_TOKENS = 4
CUT = make_cut((), 18, (range(1), range(2, 3), range(5, 6), range(8, 18)))
PIECES = usable_states([CUT], [True] * 6, stop=22, chunk_tokens=CHUNK_TOKENS).pieces


def test_whole_chunks_that_follow_are_loaded_at_once_and_others_alone() -> None:
    assert chunks_of(PIECES) == (0, 1, 2, 3, 4, 5)
    assert list(load_runs(PIECES, range(6), chunk_tokens=CHUNK_TOKENS)) == [
        LoadRun(0, 1, 0, 1, 0),
        LoadRun(0, 1, 2, 1, 1),
        LoadRun(1, 1, 1, 1, 2),
        LoadRun(2, 3, 0, 4, 3),
        LoadRun(5, 1, 0, 2, 15),
    ]


def test_a_span_has_its_own_chunks_only() -> None:
    """Numbers are those among the chunks that are read, which leave dropped ones out."""
    pieces = usable_states(
        [make_cut((), 12, (range(1), range(8, 12)))], [True] * 4, stop=16, chunk_tokens=CHUNK_TOKENS
    ).pieces
    assert chunks_of(pieces) == (0, 2, 3)
    assert list(load_runs(pieces, range(2, 3), chunk_tokens=CHUNK_TOKENS)) == [
        LoadRun(2, 1, 0, 4, 5)
    ]
    runs = list(load_runs(pieces, range(1, 3), chunk_tokens=CHUNK_TOKENS))
    assert runs == [LoadRun(1, 2, 0, 4, 1)]
    assert runs[0].token_count == 8
    assert list(load_runs(pieces, range(0), chunk_tokens=CHUNK_TOKENS)) == []
