"""Gauges of the store."""

import pytest

from kvstored.store.index.transaction import EncodedChange
from kvstored_contract.reasons import Reason
from tests.support.stores import BASE, NAMESPACE, StoreUnderTest, key, new_board, put_durable


def test_pinned_chunks_count_once_each(opened: StoreUnderTest) -> None:
    put_durable(opened, [0, 1, 2])
    assert opened.stats().pinned_chunk_count == 0
    pins = [opened.store.pin(NAMESPACE, [key(0), key(1)]) for _ in range(2)]
    assert opened.stats().pinned_chunk_count == 2
    opened.store.unpin(pins[0])
    assert opened.stats().pinned_chunk_count == 2
    opened.store.unpin(pins[1])
    assert opened.stats().pinned_chunk_count == 0
    opened.read([0], base=BASE, board=new_board(1)).wait(None)
    assert opened.stats().pinned_chunk_count == 0


def test_an_index_that_failed_is_told(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    put_durable(opened, [0])
    assert not opened.stats().index_failed
    with monkeypatch.context() as broken:
        broken.setattr(EncodedChange, "apply", fail)
        (ticket,) = opened.put([1])
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.INTERNAL
    assert opened.stats().index_failed
    assert opened.stats().chunk_count == 1


def test_commits_that_ended_with_a_fault_are_told_as_well(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(EncodedChange, "apply", fail)
        (ticket,) = opened.put([1])
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.INTERNAL
    assert opened.stats().index_failed
