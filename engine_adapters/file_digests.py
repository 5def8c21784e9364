"""Digests of weight files, remembered between starts of an engine.

Hashing takes about a second for each gigabyte. A digest is taken from memory only where the file
is the one that was hashed: same path, size, times, inode and device, none of its times younger
than ``SETTLED_S`` before it was hashed (a later write within one tick of the file system's clock
would leave no trace). What is remembered wrongly, or not at all, costs time or a miss.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Self

VARIABLE = "KVSTORED_CACHE"
"""Names the folder of what is remembered; empty: nothing is."""
FILE_NAME = "weight-digests.json"
VERSION = 1
SETTLED_S = 10
"""More than any file system's clock ticks, and than clocks of its servers differ."""
ENTRIES_MAX = 4096
FILE_BYTES_MAX = 8 * 1024 * 1024
_NS = 1_000_000_000
_OTHERS_MAY_WRITE = 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file as it was when it was hashed; times in nanoseconds since 1970, ``digest`` in hex."""

    byte_count: int
    modified_ns: int
    changed_ns: int
    inode: int
    device: int
    hashed_ns: int
    digest: str

    @classmethod
    def of(cls, state: os.stat_result, *, hashed_ns: int, digest: str) -> Self:
        """What a file's state says."""
        return cls(
            byte_count=state.st_size,
            modified_ns=state.st_mtime_ns,
            changed_ns=state.st_ctime_ns,
            inode=state.st_ino,
            device=state.st_dev,
            hashed_ns=hashed_ns,
            digest=digest,
        )

    @property
    def is_settled(self) -> bool:
        """Whether a later change would show in the file's times."""
        return max(self.modified_ns, self.changed_ns) + SETTLED_S * _NS < self.hashed_ns

    def is_still(self, state: os.stat_result) -> bool:
        """Whether ``state`` is that of the file that was hashed."""
        return self.is_settled and self == HashedFile.of(
            state, hashed_ns=self.hashed_ns, digest=self.digest
        )


def file_digests(
    paths: Iterable[Path],
    *,
    memory: Path | None = None,
    clock_ns: Callable[[], int] = time.time_ns,
) -> list[bytes]:
    """SHA-256 over the bytes of each file, 32 bytes; raises OSError where one cannot be read.

    ``memory`` is the file of what is remembered, by default the user's own. Whatever is wrong with
    it, files are hashed.
    """
    memory = default_memory() if memory is None else memory
    known = {} if memory is None else _remembered(memory)
    fresh: dict[str, HashedFile] = {}
    digests = []
    for path in paths:
        name = str(path.resolve())
        with path.open("rb") as file:
            hashed = known.get(name)
            if hashed is None or not hashed.is_still(os.fstat(file.fileno())):
                hashed = _hashed(file, clock_ns)
                fresh[name] = hashed
        digests.append(bytes.fromhex(hashed.digest))
    settled = {name: hashed for name, hashed in fresh.items() if hashed.is_settled}
    if memory is not None and settled:
        # What another process has remembered meanwhile is hashed once more.
        with suppress(OSError):
            _remember(memory, {**known, **settled})
    return digests


def default_memory(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where a user's digests are: below KVSTORED_CACHE, else XDG_CACHE_HOME, else ~/.cache."""
    named = environment.get(VARIABLE)
    if named is not None:
        return Path(named) / FILE_NAME if named else None
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    try:
        folder = base if base.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        # The user has no home.
        return None
    return folder / "kvstored" / FILE_NAME


def _hashed(file: BufferedReader, clock_ns: Callable[[], int]) -> HashedFile:
    """Hashes an open file; one that changes meanwhile is not settled."""
    started_ns = clock_ns()
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return HashedFile.of(os.fstat(file.fileno()), hashed_ns=started_ns, digest=digest)


def encoded(files: Mapping[str, HashedFile]) -> bytes:
    """What is remembered, as JSON; of too many the ones that were hashed last."""
    newest = sorted(files.items(), key=lambda item: item[1].hashed_ns)[-ENTRIES_MAX:]
    entries = {name: asdict(hashed) for name, hashed in newest}
    return json.dumps(
        {"version": VERSION, "checksum": _checksum(entries), "files": entries}
    ).encode()


def decoded(text: bytes) -> dict[str, HashedFile]:
    """The reverse; raises ValueError, KeyError or TypeError for anything else."""
    document = json.loads(text)
    entries = document["files"]
    if document["version"] != VERSION or document["checksum"] != _checksum(entries):
        raise ValueError("the digests are of another version, or damaged")
    return {name: HashedFile(**fields) for name, fields in entries.items()}


def _checksum(entries: Mapping[str, Mapping[str, object]]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


def _remembered(memory: Path) -> dict[str, HashedFile]:
    """What the file says; nothing where it is not this user's alone, or cannot be understood."""
    try:
        with memory.open("rb") as file:
            state = os.fstat(file.fileno())
            if state.st_uid != os.geteuid() or state.st_mode & _OTHERS_MAY_WRITE:
                return {}
            return decoded(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remember(memory: Path, files: Mapping[str, HashedFile]) -> None:
    """Puts a new file in the place of the old one, whole or not at all; raises OSError."""
    memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=memory.parent, prefix=memory.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(encoded(files))
        Path(name).replace(memory)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
