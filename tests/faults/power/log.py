"""Reads a log of strace: every change of files below one folder, in the order it happened.

A call begins where its first line stands and ends where its result stands; other calls
may lie in between. Whatever the lab does not know how to replay is an error, never
passed over.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CALLS = (
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "msync",
    "truncate",
    "ftruncate",
    "fallocate",
    "copy_file_range",
    "open",
    "creat",
    "openat",
    "openat2",
    "lseek",
    "rename",
    "renameat",
    "renameat2",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "io_uring_setup",
)
"""Calls that change files, and those that tell where and how they do."""

_LINE = re.compile(rb"(\d+) +(.*)")
_START = re.compile(rb"(\w+)\((.*)")
_RESUMED = re.compile(rb"<\.\.\. (\w+) resumed>(.*)")
_RESULT = re.compile(rb"(.*)\) += (-?\d+)(?:<((?:\\x..)*)>)?")
_UNFINISHED = b" <unfinished ...>"
_ENDED = b"= ?"
_DESCRIPTOR = re.compile(rb"(\d+)<((?:\\x..)*)>")
_TEXT = re.compile(rb'"((?:\\x..)*)"(\.*)')
_IGNORED_FILE = "lock.mdb"
"""Shared memory of processes that are alive: LMDB makes it anew when nobody has it open."""


class LogError(ValueError):
    """The log holds something that the lab cannot replay."""


class UnknownResultError(LogError):
    """The process ended within a call, so nobody knows what that did."""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call that succeeded: first and last line, arguments as strace wrote them."""

    begin: int
    end: int
    name: str
    arguments: bytes
    result: int
    result_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """``data`` was written at ``offset`` of a file; ``is_synced`` is that of O_DSYNC."""

    begin: int
    end: int
    path: str
    offset: int
    data: bytes
    is_synced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What was written to a file, or the names in a folder, were made durable."""

    begin: int
    end: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A name appeared, or vanished (``is_gone``), or took the place of ``source``."""

    begin: int
    end: int
    path: str
    source: str | None = None
    is_gone: bool = False
    is_folder: bool = False


Event = Written | Flushed | Named


def read_events(log: Path, folder: Path) -> list[Event]:
    """Everything that happened below ``folder``, by the line where it began.

    Paths are relative to it. Raises LogError.
    """
    reader = _Reader(f"{folder}/")
    return [event for call in sorted(_calls(log), key=_begin) for event in reader.events(call)]


def _begin(call: Call) -> int:
    return call.begin


def _calls(log: Path) -> Iterator[Call]:
    """The calls that succeeded, by their end."""
    unfinished: dict[bytes, tuple[int, bytes]] = {}
    with log.open("rb") as lines:
        for number, line in enumerate(lines):
            match = _LINE.match(line.rstrip())
            if match is None:
                raise LogError(f"line {number} is not strace's: {line[:80]!r}")
            thread, text = match.groups()
            begin = number
            if text.endswith(_UNFINISHED):
                unfinished[thread] = number, text[: -len(_UNFINISHED)]
                continue
            if resumed := _RESUMED.match(text):
                begin, before = unfinished.pop(thread)
                text = before + resumed[2]
            started, finished = _START.match(text), _RESULT.match(text)
            if started is None:
                continue
            if finished is None and text.endswith(_ENDED):
                raise UnknownResultError(f"the process ended within the call of line {number}")
            if finished is None:
                raise LogError(f"line {number} has no result: {text[:200]!r}")
            if int(finished[2]) >= 0:
                arguments = finished[1][len(started[1]) + 1 :]
                path = _decoded(finished[3] or b"").decode()
                yield Call(begin, number, started[1].decode(), arguments, int(finished[2]), path)


class _Reader:
    """Follows descriptors: where the next write goes, and whether it is synchronous."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._positions: dict[tuple[int, str], int] = {}
        self._synced: dict[tuple[int, str], bool] = {}
        self._names: set[str] = set()

    def events(self, call: Call) -> Iterator[Event]:
        """What one call did below the folder; mostly one thing."""
        if call.name == "io_uring_setup":
            raise LogError("writes through io_uring are not in the log")
        if call.name == "openat":
            yield from self._opened(call)
        elif call.name in {"rename", "mkdir", "unlink", "rmdir"}:
            yield from self._named(call)
        elif match := _DESCRIPTOR.match(call.arguments):
            path = self._relative(_decoded(match[2]).decode())
            if path is not None:
                yield from self._used(call, int(match[1]), path)
        elif self._folder.encode().hex() in call.arguments.replace(b"\\x", b"").decode():
            raise LogError(f"line {call.begin}: the lab does not know {call.name}")

    def _relative(self, path: str) -> str | None:
        """The path below the folder; None elsewhere."""
        if path + "/" == self._folder:
            return ""
        if not path.startswith(self._folder) or path.endswith(_IGNORED_FILE):
            return None
        return path.removeprefix(self._folder)

    def _opened(self, call: Call) -> Iterator[Event]:
        path = self._relative(call.result_path)
        if path is None:
            return
        flags = call.arguments.rpartition(b'"')[2]
        key = call.result, path
        self._positions[key] = 0
        self._synced[key] = b"O_DSYNC" in flags or b"O_SYNC" in flags
        if b"O_CREAT" in flags and path not in self._names:
            self._names.add(path)
            yield Named(begin=call.begin, end=call.end, path=path)
        elif b"O_TRUNC" in flags:
            raise LogError(f"line {call.begin}: the lab does not know how to empty {path}")

    def _named(self, call: Call) -> Iterator[Event]:
        paths = [
            self._relative(_decoded(text[0]).decode()) for text in _TEXT.findall(call.arguments)
        ]
        if paths == [None] * len(paths):
            return
        path = paths[-1]
        if path is None or paths[0] is None:
            raise LogError(f"line {call.begin}: a name leaves the folder")
        is_gone = call.name in {"unlink", "rmdir"}
        self._names.discard(paths[0])
        if not is_gone:
            self._names.add(path)
        yield Named(
            begin=call.begin,
            end=call.end,
            path=path,
            source=paths[0] if call.name == "rename" else None,
            is_gone=is_gone,
            is_folder=call.name in {"mkdir", "rmdir"},
        )

    def _used(self, call: Call, descriptor: int, path: str) -> Iterator[Event]:
        key = descriptor, path
        if call.name == "lseek":
            self._positions[key] = call.result
        elif call.name in {"fsync", "fdatasync"}:
            yield Flushed(begin=call.begin, end=call.end, path=path)
        elif "write" in call.name:
            yield self._written(call, key)
        else:
            raise LogError(f"line {call.begin}: the lab does not know {call.name} of {path}")

    def _written(self, call: Call, key: tuple[int, str]) -> Written:
        texts = _TEXT.findall(call.arguments)
        if any(dots for _, dots in texts):
            raise LogError(f"line {call.begin}: strace has cut short what was written")
        data = b"".join(_decoded(text) for text, _ in texts)
        if len(data) != call.result:
            raise LogError(f"line {call.begin}: {call.result} of {len(data)} bytes were written")
        if call.name in {"write", "writev"}:
            offset = self._positions[key]
            self._positions[key] += len(data)
        else:
            fields = call.arguments.rsplit(b", ", 2)
            offset = int(fields[1 if call.name == "pwritev2" else 2])
        return Written(
            begin=call.begin,
            end=call.end,
            path=key[1],
            offset=offset,
            data=data,
            is_synced=self._synced.get(key, False),
        )


def _decoded(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"\\x", b"").decode())
