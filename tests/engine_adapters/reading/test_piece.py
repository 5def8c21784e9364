from engine_adapters.reading.piece import Piece, pieces_of, stretches, tokens_of


def test_complete_chunks_follow_each_other() -> None:
    pieces = pieces_of([b"a", b"b"], chunk_tokens=8)
    assert pieces == (Piece(b"a", 0, 8), Piece(b"b", 8, 8))
    assert [piece.stop_position for piece in pieces] == [8, 16]


def test_pieces_that_follow_each_other_with_as_many_tokens_are_one_stretch() -> None:
    pieces = (
        Piece(b"a", 0, 8),
        Piece(b"b", 8, 8),
        Piece(b"c", 24, 8),
        Piece(b"d", 32, 5),
        Piece(b"e", 37, 8),
    )
    assert list(stretches(pieces, range(5))) == [
        range(2),
        range(2, 3),
        range(3, 4),
        range(4, 5),
    ]
    assert list(stretches(pieces, range(1, 3))) == [range(1, 2), range(2, 3)]
    assert list(stretches(pieces, range(1))) == [range(1)]
    assert list(stretches(pieces, range(2, 2))) == []


def test_pieces_of_as_many_tokens() -> None:
    pieces = (Piece(b"a", 0, 8), Piece(b"b", 8, 3))
    assert tokens_of(pieces, range(1, 2)) == 3
    assert tokens_of(pieces, range(1, 1)) is None
