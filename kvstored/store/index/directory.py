"""Directories as LMDB and renames leave them: changed, but not yet durable."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
