"""Which memory is registered when; CUDA itself is played by a test."""

import gc
import logging
import mmap
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch

from engine_adapters.device_copies import pinned_memory
from engine_adapters.device_copies.pinned_memory import PinnedMemories, PinnedMemory

DEVICE = torch.device("cuda")


class Runtime:
    """Notes calls; ``error`` is the answer to the next ones."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.threads: set[threading.Thread] = set()
        self.error = 0

    def register(self, address: int, byte_count: int, flags: int) -> int:
        assert flags == 0
        assert address not in self.registered
        self.threads.add(threading.current_thread())
        if not self.error:
            self.registered[address] = byte_count
        return self.error

    def unregister(self, address: int) -> int:
        self.threads.add(threading.current_thread())
        del self.registered[address]
        return 0


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
    pinned = PinnedMemory(DEVICE, PinnedMemories())
    for byte_count in (4096, 8192):
        memory = memoryview(bytearray(byte_count))
        assert not pinned.is_of(memory)
        pinned.register(memory)
        assert pinned.is_of(memory)
        assert list(runtime.registered.values()) == [byte_count]
    pinned.register(None)
    assert not pinned.is_of(memory)
    assert not runtime.registered
    assert threading.current_thread() not in runtime.threads


def test_a_refusal_is_said_and_nothing_is_unregistered_later(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    pinned, refused = PinnedMemory(DEVICE, PinnedMemories()), memoryview(bytearray(4096))
    runtime.error = 2
    with caplog.at_level(logging.WARNING):
        pinned.register(refused)
    assert "does not pin 4096 bytes of shared memory (error 2)" in caplog.text
    assert pinned.is_of(refused), "it is not tried again"
    runtime.error = 0
    pinned.register(memoryview(bytearray(8192)))
    assert list(runtime.registered.values()) == [8192]


def test_memory_that_others_have_pinned_is_pinned_until_all_gave_it_up(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """*Bug:* the second saver of a session said that copies would be slow; they were not."""
    memories, shared = PinnedMemories(), memoryview(bytearray(4096))
    first, second = PinnedMemory(DEVICE, memories), PinnedMemory(DEVICE, memories)
    with caplog.at_level(logging.WARNING):
        first.register(shared)
        second.register(shared)
    assert not caplog.records
    first.register(None)
    assert list(runtime.registered.values()) == [4096], "the second still copies"
    second.register(None)
    assert not runtime.registered


def test_memory_went_while_cuda_still_had_it_registered(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* a GPU copied bytes of the session before, whose arena had lain at the same address."""
    told: list[bool] = []
    mapped = mmap.mmap(-1, mmap.PAGESIZE)
    alive = weakref.ref(mapped)
    unregister = runtime.unregister

    def noted(address: int) -> int:
        told.append(alive() is not None)
        return unregister(address)

    monkeypatch.setattr(
        torch.cuda,
        "cudart",
        lambda: SimpleNamespace(cudaHostRegister=runtime.register, cudaHostUnregister=noted),
    )
    pinned = PinnedMemory(DEVICE, PinnedMemories())
    pinned.register(memoryview(mapped))
    del mapped
    gc.collect()
    assert alive() is not None
    pinned.register(None)
    assert told == [True]
    assert alive() is None


def test_a_finalizer_waited_for_memory_that_its_own_thread_was_registering(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* the interpreter collected dropped copies in the midst of that, and all stood still."""
    memories, finished = PinnedMemories(), list[str]()
    dropped = PinnedMemory(DEVICE, memories)
    dropped.register(memoryview(bytearray(4096)))
    register = runtime.register

    def interrupted(address: int, byte_count: int, flags: int) -> int:
        dropped.drop(lambda: finished.append("copies"))
        return register(address, byte_count, flags)

    monkeypatch.setattr(
        torch.cuda,
        "cudart",
        lambda: SimpleNamespace(
            cudaHostRegister=interrupted, cudaHostUnregister=runtime.unregister
        ),
    )
    pinned = PinnedMemory(DEVICE, memories)
    pinned.register(memoryview(bytearray(8192)))
    assert sorted(runtime.registered.values()) == [4096, 8192], "not in the midst"
    assert not finished
    pinned.register(memoryview(bytearray(16384)))
    assert finished == ["copies"]
    assert list(runtime.registered.values()) == [16384]


def test_a_failure_with_dropped_memory_is_nobody_elses(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    memories = PinnedMemories()
    dropped = PinnedMemory(DEVICE, memories)
    dropped.register(memoryview(bytearray(4096)))

    def fail() -> None:
        raise RuntimeError("the device is gone")

    dropped.drop(fail)
    PinnedMemory(DEVICE, memories).register(memoryview(bytearray(8192)))
    assert "stays registered" in caplog.text
    assert sorted(runtime.registered.values()) == [4096, 8192]


def test_memory_that_cuda_does_not_unregister_stays_mapped(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = SimpleNamespace(cudaHostRegister=runtime.register, cudaHostUnregister=lambda address: 1)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: calls)
    mapped = mmap.mmap(-1, mmap.PAGESIZE)
    alive = weakref.ref(mapped)
    pinned = PinnedMemory(DEVICE, PinnedMemories())
    pinned.register(memoryview(mapped))
    del mapped
    pinned.register(None)
    gc.collect()
    assert "does not unregister" in caplog.text
    # As long as all that knows of registered memory, which is the process.
    assert alive() is not None


def test_what_cuda_raises_reaches_the_caller(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_device(device: torch.device) -> None:
        raise RuntimeError(f"no {device}")

    monkeypatch.setattr(torch.cuda, "set_device", no_device)
    with pytest.raises(RuntimeError, match="no cuda"):
        PinnedMemory(DEVICE, PinnedMemories()).register(memoryview(bytearray(4096)))


def test_nothing_is_given_up_where_nothing_was_registered(runtime: Runtime) -> None:
    memories, finished = PinnedMemories(), list[str]()
    PinnedMemory(DEVICE, memories).drop(lambda: finished.append("copies"))
    PinnedMemory(DEVICE, memories).register(memoryview(bytearray(4096)))
    assert not finished


def test_all_copies_of_a_process_share_what_is_registered() -> None:
    assert PinnedMemory(DEVICE)._memories is PinnedMemory(DEVICE)._memories
    assert PinnedMemory(DEVICE)._memories is pinned_memory._OF_PROCESS
