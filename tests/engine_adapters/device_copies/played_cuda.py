"""CUDA as a CPU plays it: everything is over at once, and who waits for whom is noted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.cuda_copies import CudaCopies

CPU = torch.device("cpu", 0)
NOTED = ("copy_", "index_select", "index_copy_")
"""What is done with tensors, and by which stream."""


class PlayedEvent:
    """That of the stream that recorded it last."""

    def __init__(self, notes: list[tuple[str, ...]]) -> None:
        self.of, self._notes = "", notes

    def record(self, stream: "PlayedStream") -> None:
        self.of = stream.name

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self._notes.append(("host", "waits for", self.of))


class PlayedStream:
    """Notes what it waits for."""

    device = CPU

    def __init__(self, name: str, notes: list[tuple[str, ...]]) -> None:
        self.name, self._notes = name, notes

    def wait_stream(self, other: "PlayedStream") -> None:
        self._notes.append((self.name, "waits for", other.name))

    def wait_event(self, event: PlayedEvent) -> None:
        if event.of:
            self._notes.append((self.name, "waits for", event.of))

    def synchronize(self) -> None:
        self._notes.append(("host", "waits for", self.name))

    def takes_ids(self) -> None:
        self._notes.append((self.name, "takes ids"))


class PlayedCudaCopies(CudaCopies):
    """Without the way of block ids to a GPU, which a CPU cannot play: it notes whose copy it is."""

    def _on_device(self, block_ids: Sequence[int]) -> Tensor:
        stream = torch.cuda.current_stream(CPU)
        assert isinstance(stream, PlayedStream)
        stream.takes_ids()
        return torch.tensor(block_ids)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What streams do, in order; "engine" is the one that is current at first."""
    notes: list[tuple[str, ...]] = []
    names = cycle(("outward", "inward", "scattering"))
    current = [PlayedStream("engine", notes)]

    @contextmanager
    def entered(stream: PlayedStream) -> Iterator[None]:
        current.append(stream)
        yield
        current.pop()

    def noted(verb: str) -> Any:
        plain = getattr(Tensor, verb)

        def act(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
            notes.append((current[-1].name, verb))
            return plain(tensor, *arguments, **options)

        return act

    def called(verb: str) -> Callable[..., int]:
        def act(*arguments: int) -> int:
            notes.append(("host", verb))
            return 0

        return act

    runtime = SimpleNamespace(
        cudaHostRegister=called("registers"),
        cudaHostUnregister=called("unregisters"),
    )
    for name, played in (
        ("Stream", lambda device: PlayedStream(next(names), notes)),
        ("Event", lambda: PlayedEvent(notes)),
        ("stream", entered),
        ("current_stream", lambda device: current[-1]),
        ("cudart", lambda: runtime),
        ("set_device", lambda device: None),
    ):
        monkeypatch.setattr(torch.cuda, name, played)
    for verb in NOTED:
        monkeypatch.setattr(Tensor, verb, noted(verb))
    monkeypatch.setattr(
        Tensor, "record_stream", lambda _, stream: notes.append(("kept for", stream.name))
    )
    return notes
