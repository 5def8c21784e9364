"""LMCache's raw block engine, driven by its own interpreter: one JSON line in, one out.

This file runs by its path where this project is not installed, so it imports none of it.
The first line is a ``Task``, the answer to it a description of the peer. Every further line
is a verb with the number of a sequence: ``put`` stores it again, ``get`` reads it. Filling,
clearing, comparing and deleting are not part of any time.

The engine is given what it is fastest with: io_uring, O_DIRECT, buffers on huge pages that
are registered with the kernel, and all chunks of a sequence in one call. It has no durable
ack: a put ends when ``fdatasync`` of its file has returned. Only a checkpoint makes chunks
findable after a restart; its time is told apart.
"""

import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 4096
CHECKPOINT_BYTES = 64 * 1024 * 1024
"""In front of the slots, for both copies of the index."""
QUEUE_DEPTH = 256
"""The engine's default."""
_RANDOM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Sequences of ``chunk_count`` chunks; ``path`` is a file with room for two."""

    path: str
    chunk_count: int
    chunk_bytes: int
    seed: int

    @property
    def sequence_bytes(self) -> int:
        """Payload of one sequence."""
        return self.chunk_count * self.chunk_bytes

    def keys(self, sequence: int) -> range:
        """One number for each chunk of a sequence."""
        return range(sequence * self.chunk_count, (sequence + 1) * self.chunk_count)


class Peer(Protocol):
    """What stores the memory's chunks under numbers. Every method raises when it failed."""

    description: str

    def put(self, keys: Sequence[int]) -> None:
        """Writes all chunks."""

    def sync(self) -> None:
        """Returns when all that was written is on media."""

    def checkpoint(self) -> None:
        """Writes what a restart needs to find the chunks."""

    def get(self, keys: Sequence[int]) -> None:
        """Reads all chunks into the memory, from media."""

    def delete(self, keys: Sequence[int]) -> None:
        """Gives the space of all chunks back."""


class RawBlock:
    """LMCache's ``RawBlockCore`` on a plain file."""

    def __init__(self, task: Task, memory: NDArray[np.uint8]) -> None:
        os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")
        import lmcache
        from lmcache.v1.distributed.l2_adapters.raw_block import RawBlockCore, RawBlockCoreConfig

        self._objects = _memory_objects(task, memory)
        self._core = RawBlockCore(
            RawBlockCoreConfig(
                device_path=task.path,
                capacity_bytes=0,
                block_align=BLOCK_BYTES,
                header_bytes=BLOCK_BYTES,
                slot_bytes=task.chunk_bytes + BLOCK_BYTES,
                use_odirect=True,
                enable_zero_copy=True,
                meta_total_bytes=CHECKPOINT_BYTES,
                meta_magic=b"LMCIDX01",
                meta_version=1,
                meta_checkpoint_interval_sec=60,
                meta_idle_quiet_ms=100,
                meta_enable_periodic=False,
                meta_verify_on_load=True,
                load_checkpoint_on_init=False,
                io_engine="io_uring",
                iouring_queue_depth=QUEUE_DEPTH,
            ),
            key_namespace="object",
        )
        self._file = os.open(task.path, os.O_RDONLY)
        buffers = "registered buffers"
        try:
            self._core.register_fixed_buffer_range(memory.ctypes.data, memory.nbytes)
        except (OSError, RuntimeError, ValueError) as error:
            # The engine goes on without them, too, when the kernel refuses.
            buffers = f"buffers that could not be registered ({error})"
        self.description = (
            f"LMCache {lmcache.__version__} raw_block, io_uring {QUEUE_DEPTH} deep, {buffers}"
        )

    def put(self, keys: Sequence[int]) -> None:
        """All chunks in one call."""
        _require(self._core.put_many([_key(key) for key in keys], self._objects).results)

    def sync(self) -> None:
        """The engine itself never does."""
        os.fdatasync(self._file)

    def checkpoint(self) -> None:
        """The engine's own, on media."""
        self._core.checkpoint_now()
        self.sync()

    def get(self, keys: Sequence[int]) -> None:
        """All chunks in one call."""
        _require(self._core.load_many_into([_key(key).encoded for key in keys], self._objects))

    def delete(self, keys: Sequence[int]) -> None:
        """From the index in memory."""
        _require(self._core.delete_many([_key(key).encoded for key in keys]))


def _memory_objects(task: Task, memory: NDArray[np.uint8]) -> list[Any]:
    import torch
    from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

    found = []
    for chunk in memory.reshape(task.chunk_count, task.chunk_bytes):
        tensor = torch.from_numpy(chunk)
        metadata = MemoryObjMetadata(
            shape=tensor.shape,
            dtype=tensor.dtype,
            address=0,
            phy_size=task.chunk_bytes,
            ref_count=1,
            fmt=MemoryFormat.UNDEFINED,
            shapes=[tensor.shape],
            dtypes=[tensor.dtype],
        )
        found.append(TensorMemoryObj(tensor, metadata, None))
    return found


def _key(number: int) -> Any:
    from lmcache.v1.distributed.l2_adapters.raw_block import RawBlockKeySpec

    return RawBlockKeySpec(encoded=f"benchmark@0x00000000@0@{number:064x}", slot_identity=number)


def _require(results: Sequence[bool]) -> None:
    if not all(results):
        raise RuntimeError(f"{results.count(False)} of {len(results)} chunks failed")


class Worker:
    """Obeys verbs. ``memory`` is both what is stored and where it is read to."""

    def __init__(self, task: Task, memory: NDArray[np.uint8], peer: Peer) -> None:
        self._task = task
        self._memory = memory
        self._peer = peer
        block = np.random.default_rng(task.seed).bytes(_RANDOM_BYTES)
        self._block = np.frombuffer(block, np.uint8)
        self._stored: set[int] = set()

    def put(self, sequence: int) -> dict[str, float]:
        """Stores a sequence; seconds until its bytes are on media, and until it can be found."""
        keys = self._task.keys(sequence)
        if sequence in self._stored:
            self._peer.delete(keys)
        self._fill(sequence)
        start = time.perf_counter()
        self._peer.put(keys)
        self._peer.sync()
        on_media = time.perf_counter()
        self._peer.checkpoint()
        findable = time.perf_counter()
        self._stored.add(sequence)
        return {"on_media_s": on_media - start, "findable_s": findable - start}

    def get(self, sequence: int) -> dict[str, float]:
        """Reads a sequence; raises ValueError when other bytes came."""
        self._memory.fill(0)
        start = time.perf_counter()
        self._peer.get(self._task.keys(sequence))
        read_s = time.perf_counter() - start
        rows = self._memory.reshape(-1, _RANDOM_BYTES)
        marks = self._marks(sequence)
        if not (np.array_equal(rows[:, :8], marks) and (rows[:, 8:] == self._block[8:]).all()):
            raise ValueError("wrong bytes were read")
        return {"read_s": read_s}

    def _fill(self, sequence: int) -> None:
        rows = self._memory.reshape(-1, _RANDOM_BYTES)
        rows[:] = self._block
        rows[:, :8] = self._marks(sequence)

    def _marks(self, sequence: int) -> NDArray[np.uint8]:
        """The number with which each MiB begins; no other sequence has it."""
        count = self._memory.nbytes // _RANDOM_BYTES
        first = sequence * count
        return np.arange(first, first + count, dtype="<u8").view(np.uint8).reshape(-1, 8)


def memory_on_huge_pages(byte_count: int) -> NDArray[np.uint8]:
    """Populated array of shape [byte_count]; on huge pages where the system grants them."""
    memory = mmap.mmap(-1, byte_count)
    memory.madvise(mmap.MADV_HUGEPAGE)
    array = np.frombuffer(memory, np.uint8)
    array.fill(0)
    return array


def obey(
    lines: Iterable[str],
    answers: IO[str],
    open_peer: Callable[[Task, NDArray[np.uint8]], Peer] = RawBlock,
) -> None:
    """Obeys until the lines end; whatever fails is answered with its sentence and ends it."""

    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    asked = iter(lines)
    try:
        task = Task(**json.loads(next(asked)))
        memory = memory_on_huge_pages(task.sequence_bytes)
        peer = open_peer(task, memory)
        worker = Worker(task, memory, peer)
        verbs = {"put": worker.put, "get": worker.get}
        answer({"result": peer.description})
        for line in asked:
            request = json.loads(line)
            answer({"result": verbs[request["verb"]](request["sequence"])})
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        raise


def obey_standard_input(
    open_peer: Callable[[Task, NDArray[np.uint8]], Peer] = RawBlock,
) -> None:
    """Answers on standard output; whatever else is printed goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    obey(sys.stdin, answers, open_peer)


if __name__ == "__main__":
    obey_standard_input()
