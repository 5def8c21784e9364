"""The layouts of a session: found by their ids, and limited."""

import pytest

from kvstored.server.errors import RefusedError
from kvstored.server.held import layout_table
from kvstored.server.held.layout_table import LayoutTable
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason


def layout(model: str = "m") -> StateLayout:
    return StateLayout(
        model=model, dtype="f", layers=(LayerState(StateKind.KV, 16),), chunk_tokens=4
    )


def test_layouts() -> None:
    layouts = LayoutTable()
    layout_id = layouts.add(layout())
    assert layouts.find(layout_id) == layout()
    with pytest.raises(RefusedError, match="not registered") as info:
        layouts.find(b"")
    assert info.value.reason is Reason.LAYOUT_UNKNOWN


def test_layouts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = LayoutTable()
    monkeypatch.setattr(layout_table, "LAYOUTS_PER_SESSION_MAX", 2)
    layouts.add(layout("a"))
    layouts.add(layout("b"))
    layouts.add(layout("a"))
    with pytest.raises(RefusedError) as info:
        layouts.add(layout("c"))
    assert info.value.reason is Reason.LIMIT_EXCEEDED
