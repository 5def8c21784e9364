import numpy as np
import pytest

from kvstored_contract.board import (
    HEAD_BYTES,
    HEAD_WORDS,
    WORD_BYTES,
    Board,
    BoardWord,
    SliceState,
    board_bytes,
)


@pytest.mark.parametrize(
    ("chunk_count", "layer_count", "byte_count"),
    [(0, 1, 64), (1, 1, 72), (1, 8, 72), (3, 3, 80), (16_384, 256, 64 + 4_194_304)],
)
def test_size_is_whole_words(chunk_count: int, layer_count: int, byte_count: int) -> None:
    assert board_bytes(chunk_count=chunk_count, layer_count=layer_count) == byte_count


def test_a_board_fits_its_size_exactly() -> None:
    buffer = memoryview(bytearray(board_bytes(chunk_count=2, layer_count=4)))
    board = Board(buffer, chunk_count=2, layer_count=4)
    assert board.words.shape == (HEAD_WORDS,)
    assert board.words.dtype == np.dtype("<u8")
    assert board.states.shape == (2, 4)
    with pytest.raises(ValueError, match="smaller"):
        Board(buffer[:-WORD_BYTES], chunk_count=2, layer_count=4)


def test_both_sides_see_the_same_bytes() -> None:
    buffer = memoryview(bytearray(board_bytes(chunk_count=2, layer_count=3)))
    engine = Board(buffer, chunk_count=2, layer_count=3)
    daemon = Board(buffer, chunk_count=2, layer_count=3)
    engine.words[BoardWord.POINTER] = 0x0102
    daemon.states[1, 2] = SliceState.RESIDENT
    assert daemon.words[BoardWord.POINTER] == 0x0102
    assert engine.states[1, 2] == SliceState.RESIDENT
    assert bytes(buffer[:2]) == b"\x02\x01"
    assert buffer[HEAD_BYTES + 1 * 3 + 2] == SliceState.RESIDENT
    assert sum(buffer) == 1 + 2 + SliceState.RESIDENT


def test_clear_zeroes_everything() -> None:
    buffer = memoryview(bytearray(b"\xff" * board_bytes(chunk_count=2, layer_count=4)))
    Board(buffer, chunk_count=2, layer_count=4).clear()
    assert not any(buffer)
    assert SliceState.PENDING.value == 0


def test_words_fit_into_the_head() -> None:
    assert len(set(BoardWord)) == len(BoardWord) <= HEAD_WORDS
    assert max(BoardWord) < HEAD_WORDS


def test_lengths_follow_the_states_at_a_whole_word() -> None:
    size = board_bytes(chunk_count=3, layer_count=3, has_lengths=True)
    assert size == HEAD_BYTES + 16 + 40
    buffer = memoryview(bytearray(size))
    board = Board(buffer, chunk_count=3, layer_count=3, has_lengths=True)
    assert board.lengths is not None
    board.lengths[:] = 7
    board.clear()
    assert not any(buffer)
    assert (board.lengths.shape, board.lengths.dtype) == ((3, 3), np.dtype("<u4"))
    board.lengths[1, 2] = 0x01020304
    start = HEAD_BYTES + 16 + 4 * (1 * 3 + 2)
    assert bytes(buffer[start : start + 4]) == b"\x04\x03\x02\x01"
    assert not board.states.any()
    assert Board(buffer, chunk_count=3, layer_count=3).lengths is None
