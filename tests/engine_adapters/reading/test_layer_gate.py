"""Which layers of a history are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.reading.layer_gate import LayerGate
from engine_adapters.reading.piece import Piece

PIECES = (Piece(b"a", 0, 8), Piece(b"b", 8, 8), Piece(b"c", 20, 5))
"""With a gap, and a short one."""


def gate_of(*, layer_count: int = 2) -> LayerGate:
    return LayerGate(PIECES, layer_count=layer_count)


def test_a_gate_opens_when_all_pieces_have_its_layer() -> None:
    gate = gate_of()
    gate.note(0, range(2))
    assert (gate.open_layers, gate.is_done) == (0, False)
    gate.note(0, range(2, 3))
    assert (gate.open_layers, gate.is_done) == (1, False)
    gate.note(1, range(3))
    assert (gate.open_layers, gate.is_done) == (2, True)
    assert (gate.kept, gate.stop_token) == (3, 25)


def test_lost_pieces_count_among_all() -> None:
    gate = gate_of()
    gate.lose(1)
    assert (gate.piece_count, gate.kept) == (3, 1)


def test_a_later_layer_opens_no_gate_before_its_own() -> None:
    gate = gate_of()
    gate.note(1, range(3))
    assert gate.open_layers == 0
    gate.note(0, range(3))
    assert gate.open_layers == 2


def test_what_is_lost_is_waited_for_no_more() -> None:
    gate = gate_of()
    gate.note(0, range(2))
    gate.lose(2)
    assert (gate.kept, gate.stop_token, gate.open_layers) == (2, 16, 1)
    gate.lose(0)
    assert (gate.kept, gate.stop_token) == (0, 0)
    assert gate.is_done


def test_at_the_end_what_is_not_there_is_lost() -> None:
    gate = gate_of()
    gate.note(0, range(3))
    gate.note(1, range(1))
    gate.note(1, range(2, 3))
    gate.end()
    assert (gate.kept, gate.stop_token) == (1, 8)
    assert gate.is_done


@pytest.mark.parametrize("layer_count", [1, 3])
def test_nothing_is_stored(layer_count: int) -> None:
    gate = LayerGate((), layer_count=layer_count)
    assert gate.is_done
    assert gate.stop_token == 0


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12),
    lost=st.lists(st.integers(0, 2), max_size=2),
)
def test_an_open_gate_has_all_kept_pieces(arrivals: list[tuple[int, int]], lost: list[int]) -> None:
    gate = gate_of(layer_count=3)
    open_layers = 0
    for layer, piece in arrivals:
        gate.note(layer, range(piece, piece + 1))
        assert gate.open_layers >= open_layers
        open_layers = gate.open_layers
    for piece in lost:
        gate.lose(piece)
    kept = min([3, *lost])
    wanted = [all((layer, piece) in arrivals for piece in range(kept)) for layer in range(3)]
    assert gate.kept == kept
    assert gate.open_layers == next((n for n, has_all in enumerate(wanted) if not has_all), 3)
