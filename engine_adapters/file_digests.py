"""Digests of weight files, remembered between starts of an engine.

Hashing takes about a second for each gigabyte. A digest is taken from memory only where the file
is the one that was hashed: same path, size, times, inode and device, none of its times younger
than ``hashed_file.SETTLED_S`` before it was hashed (a later write within one tick of the file
system's clock would leave no trace). What is remembered wrongly, or not at all, costs time or a
miss.
"""

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from engine_adapters.hashed_file import HashedFile, decoded, encoded

VARIABLE = "KVSTORED_CACHE"
"""Names the folder of what is remembered; empty: nothing is."""
FILE_NAME = "weight-digests.json"
FILE_BYTES_MAX = 8 * 1024 * 1024
_OTHERS_MAY_WRITE = 0o022


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
