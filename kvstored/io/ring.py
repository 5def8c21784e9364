"""One io_uring: the kernel runs transfers that were queued and reports each once.

The ring's two queues are memory shared with the kernel; their layout is that of
``linux/io_uring.h``. Neither polling thread nor registered buffers are used, so that
every change of a queue is ordered by the system call that follows or precedes it.
"""

import ctypes
import mmap
import os
import struct
from enum import IntEnum
from typing import NamedTuple

_SYS_SETUP = 425
_SYS_ENTER = 426
_ENTER_GETEVENTS = 1
_OFFSET_QUEUES = 0
_OFFSET_ENTRIES = 0x10000000
_ENTRY_BYTES = 64
_COMPLETION_BYTES = 16

_PARAMETERS = struct.Struct("<10I")
_SUBMISSION_OFFSETS = struct.Struct("<7I")
_COMPLETION_OFFSETS = struct.Struct("<6I")
_PARAMETERS_BYTES = 120
_SUBMISSION_START = 40
_COMPLETION_START = 80

_ENTRY = struct.Struct("<BBHiQQIIQQQQ")
_COMPLETION = struct.Struct("<Qi4x")

_libc = ctypes.CDLL(None, use_errno=True)
_setup = ctypes.CFUNCTYPE(
    *(ctypes.c_long, ctypes.c_long, ctypes.c_uint, ctypes.c_void_p), use_errno=True
)(("syscall", _libc))
_enter = ctypes.CFUNCTYPE(
    *(ctypes.c_long, ctypes.c_long, ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint),
    *(ctypes.c_void_p, ctypes.c_size_t),
    use_errno=True,
)(("syscall", _libc))


class Opcode(IntEnum):
    """What an entry asks of the kernel."""

    NOP = 0
    READV = 1
    WRITEV = 2


class Completion(NamedTuple):
    """``result`` is the number of bytes moved, or a negative errno."""

    token: int
    result: int


class Ring:
    """A ring with room for ``entries`` transfers in flight, which the caller must not exceed.

    One thread at a time may call ``submit``, another one ``wait``. Raises OSError where
    the system offers no io_uring.
    """

    def __init__(self, entries: int) -> None:
        parameters = bytearray(_PARAMETERS_BYTES)
        shared = (ctypes.c_char * _PARAMETERS_BYTES).from_buffer(parameters)
        self._descriptor = _checked(_setup(_SYS_SETUP, entries, shared))
        try:
            self._map(parameters)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _map(self, parameters: bytearray) -> None:
        """Maps the queues and finds their words."""
        entries, completions = _PARAMETERS.unpack_from(parameters)[:2]
        _, tail, mask, _, _, _, array = _SUBMISSION_OFFSETS.unpack_from(
            parameters, _SUBMISSION_START
        )
        head, completion_tail, completion_mask, _, _, results = _COMPLETION_OFFSETS.unpack_from(
            parameters, _COMPLETION_START
        )
        queue_bytes = max(array + entries * 4, results + completions * _COMPLETION_BYTES)
        self._queues = mmap.mmap(self._descriptor, queue_bytes, offset=_OFFSET_QUEUES)
        self._entries = mmap.mmap(self._descriptor, entries * _ENTRY_BYTES, offset=_OFFSET_ENTRIES)
        self._words = memoryview(self._queues).cast("I")
        self._tail_word = tail // 4
        self._mask = self._words[mask // 4]
        self._head_word = head // 4
        self._completion_tail_word = completion_tail // 4
        self._completion_mask = self._words[completion_mask // 4]
        self._results = results
        for number in range(entries):
            self._words[array // 4 + number] = number

    def submit(
        self,
        opcode: Opcode,
        *,
        token: int,
        descriptor: int = -1,
        vector: int = 0,
        vector_count: int = 0,
        offset: int = 0,
    ) -> None:
        """Hands one transfer to the kernel; raises OSError when that refuses it.

        ``vector`` is the address of ``vector_count`` iovecs, which together with the
        buffers they name must stay until the completion with ``token``.
        """
        tail = self._words[self._tail_word]
        _ENTRY.pack_into(
            self._entries,
            (tail & self._mask) * _ENTRY_BYTES,
            *(opcode, 0, 0, descriptor, offset, vector, vector_count, 0, token, 0, 0, 0),
        )
        self._words[self._tail_word] = (tail + 1) & 0xFFFFFFFF
        try:
            _checked(_enter(_SYS_ENTER, self._descriptor, 1, 0, 0, None, 0))
        except OSError:
            # The kernel has not taken the entry: the next one goes into its place.
            self._words[self._tail_word] = tail
            raise

    def wait(self) -> list[Completion]:
        """Waits until there are completions, and takes all of them."""
        head = self._words[self._head_word]
        while (tail := self._words[self._completion_tail_word]) == head:
            try:
                _checked(_enter(_SYS_ENTER, self._descriptor, 0, 1, _ENTER_GETEVENTS, None, 0))
            except InterruptedError:
                continue
        completions = []
        while head != tail:
            place = self._results + (head & self._completion_mask) * _COMPLETION_BYTES
            completions.append(Completion(*_COMPLETION.unpack_from(self._queues, place)))
            head = (head + 1) & 0xFFFFFFFF
        self._words[self._head_word] = head
        return completions

    def close(self) -> None:
        """Gives the ring back; nothing may be in flight."""
        self._words.release()
        self._queues.close()
        self._entries.close()
        os.close(self._descriptor)


def probe() -> None:
    """Raises OSError unless the system lets this process make a ring and use it.

    A filter of system calls may allow the one and forbid the other.
    """
    ring = Ring(1)
    try:
        ring.submit(Opcode.NOP, token=1)
        ring.wait()
    finally:
        ring.close()


def _checked(result: int) -> int:
    """The result of a system call; raises OSError when it failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
