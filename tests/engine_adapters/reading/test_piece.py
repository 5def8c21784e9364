from engine_adapters.reading.piece import Piece, pieces_of


def test_complete_chunks_follow_each_other() -> None:
    pieces = pieces_of([b"a", b"b"], chunk_tokens=8)
    assert pieces == (Piece(b"a", 0, 8), Piece(b"b", 8, 8))
    assert [piece.stop_position for piece in pieces] == [8, 16]
