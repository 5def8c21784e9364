"""Scratch folders: on the file system that is measured, and gone afterwards."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.benchmark import BenchmarkError

SCRATCH_BYTES_MAX = 10_000_000_000
"""No benchmark may need more."""


@contextmanager
def scratch_folder(parent: Path, needed_bytes: int) -> Iterator[Path]:
    """A new folder in ``parent``, removed with all it holds.

    ``parent`` is made, and removed again when nothing else is in it. Raises
    BenchmarkError when ``needed_bytes`` are not free.
    """
    assert needed_bytes <= SCRATCH_BYTES_MAX
    parent.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < needed_bytes:
        raise BenchmarkError(
            f"{parent} has {free_bytes / 1e9:.1f} GB free and {needed_bytes / 1e9:.1f} GB are "
            "needed; name another folder with --folder"
        )
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        # Another benchmark may be at work beside this one.
        with contextlib.suppress(OSError):
            parent.rmdir()
