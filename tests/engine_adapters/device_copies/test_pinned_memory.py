"""Which memory is registered when; CUDA itself is played by a test."""

import logging
import threading
from types import SimpleNamespace

import pytest
import torch

from engine_adapters.device_copies.pinned_memory import ALREADY_REGISTERED, PinnedMemory


class Runtime:
    """Notes calls; ``error`` is the answer to the next ones."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.threads: set[threading.Thread] = set()
        self.error = 0

    def register(self, address: int, byte_count: int, flags: int) -> int:
        assert flags == 0
        self.threads.add(threading.current_thread())
        if not self.error:
            self.registered[address] = byte_count
        return self.error

    def unregister(self, address: int) -> None:
        del self.registered[address]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    runtime = Runtime()
    calls = SimpleNamespace(
        cudaHostRegister=runtime.register, cudaHostUnregister=runtime.unregister
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: calls)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    return runtime


def test_memory_of_the_last_session_is_registered(runtime: Runtime) -> None:
    pinned = PinnedMemory(torch.device("cuda"))
    for byte_count in (4096, 8192):
        memory = memoryview(bytearray(byte_count))
        assert not pinned.is_of(memory)
        pinned.register(memory)
        assert pinned.is_of(memory)
        assert list(runtime.registered.values()) == [byte_count]
    assert threading.current_thread() not in runtime.threads


def test_a_refusal_is_said_and_nothing_is_unregistered_later(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    pinned, refused = PinnedMemory(torch.device("cuda")), memoryview(bytearray(4096))
    runtime.error = 2
    with caplog.at_level(logging.WARNING):
        pinned.register(refused)
    assert "does not pin 4096 bytes of shared memory (error 2)" in caplog.text
    assert pinned.is_of(refused), "it is not tried again"
    runtime.error = 0
    pinned.register(memoryview(bytearray(8192)))
    assert list(runtime.registered.values()) == [8192]


def test_memory_that_others_have_pinned_is_pinned(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """*Bug:* the second saver of a session said that copies would be slow; they were not."""
    pinned, shared = PinnedMemory(torch.device("cuda")), memoryview(bytearray(4096))
    runtime.error = ALREADY_REGISTERED
    with caplog.at_level(logging.WARNING):
        pinned.register(shared)
    assert not caplog.records
    runtime.error = 0
    pinned.register(memoryview(bytearray(8192)))
    assert list(runtime.registered.values()) == [8192], "what others registered is theirs"
