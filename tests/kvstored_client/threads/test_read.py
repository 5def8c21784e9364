"""What a waiting read asks the daemon to wake it for."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from kvstored_client.aio.read import AsyncRead
from kvstored_client.aio.transport import AioSignal
from kvstored_client.threads.read import Read
from kvstored_client.threads.transport import Signal
from kvstored_contract.board import BoardWord, SliceState, Watch
from tests.kvstored_client.board_side import Side, open_side

SOON_S = 0.001


@pytest.fixture
def side() -> Iterator[Side]:
    with open_side() as side:
        yield side


def waiting_threads(side: Side) -> Iterator[Callable[[], object]]:
    read = Read(side.progress, Signal(side.presence))
    yield lambda: read.wait(SOON_S)
    yield lambda: read.wait_layer(0, SOON_S)
    yield lambda: read.wait_for(0, timeout_s=SOON_S)
    yield lambda: read.wait(SOON_S)


def waiting_tasks(side: Side) -> Iterator[Callable[[], object]]:
    async def in_task(wait: Callable[[AsyncRead], object]) -> None:
        signal = AioSignal(side.presence)
        try:
            await wait(AsyncRead(side.progress, signal))  # type: ignore[misc]
        finally:
            signal.close()

    yield lambda: asyncio.run(in_task(lambda read: read.wait(SOON_S)))
    yield lambda: asyncio.run(in_task(lambda read: read.wait_layer(0, SOON_S)))
    yield lambda: asyncio.run(in_task(lambda read: read.wait_for(0, timeout_s=SOON_S)))
    yield lambda: asyncio.run(in_task(lambda read: read.wait(SOON_S)))


@pytest.mark.parametrize("waits", [waiting_threads, waiting_tasks])
def test_whoever_waits_says_for_what(
    side: Side, waits: Callable[[Side], Iterator[Callable[[], object]]]
) -> None:
    found = []
    for wait in waits(side):
        wait()
        found.append(side.board.words[BoardWord.WATCHED])
    # A wait for the end does not take back what another thread asked for.
    assert found == [Watch.END, Watch.PROGRESS, Watch.PROGRESS, Watch.PROGRESS]


def test_whoever_finds_it_settled_asks_for_nothing(side: Side) -> None:
    side.board.states[:] = SliceState.RESIDENT
    side.board.words[BoardWord.FINISHED] = 1
    read = Read(side.progress, Signal(side.presence))
    assert read.wait_layer(0)
    assert read.wait().finished
    assert side.board.words[BoardWord.WATCHED] == Watch.NOTHING


def test_looking_at_a_layer_asks_for_nothing(side: Side) -> None:
    read = Read(side.progress, Signal(side.presence))
    assert not read.is_layer_settled(1)
    side.board.states[:, 1] = SliceState.MISSING
    assert read.is_layer_settled(1)
    assert not read.is_layer_settled(0)
    assert side.board.words[BoardWord.WATCHED] == Watch.NOTHING
