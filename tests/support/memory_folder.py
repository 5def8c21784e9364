"""Folders in memory, for tests that write an index and are not about durability."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES_MIN = 2 << 30
"""With less room (containers often have 64 MiB) folders lie on the disk."""


@contextmanager
def memory_folder() -> Iterator[Path]:
    """An empty folder that goes when the body ends, in memory where there is room."""
    with tempfile.TemporaryDirectory(prefix="kvstored-test-", dir=_root()) as folder:
        yield Path(folder)


def _root() -> Path | None:
    if not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free < ROOM_BYTES_MIN:
        return None
    return SHARED_MEMORY
