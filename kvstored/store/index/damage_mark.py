"""A file beside the index that outlives the process: the index is damaged, rebuild it.

Some damage is met by reads or writes only, and not by the look through the index before it
is served. The code that meets it leaves the mark, and the next start sets the index aside.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

from kvstored.store.index.directory import sync_directory
from kvstored.store.index.failure import IndexDamagedError, IndexFailure

LOGGER = logging.getLogger(__name__)

DAMAGE_FILE = "DAMAGED"
_CAUSE_BYTES_MAX = 1000


def leave_mark(directory: Path, cause: str) -> None:
    """Marks the index in a directory, durably if that is possible."""
    try:
        descriptor = os.open(
            directory / DAMAGE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except FileExistsError:
        return
    except OSError as error:
        LOGGER.warning("the damage of the index in %s could not be marked: %s", directory, error)
        return
    # The name alone is the mark, whatever becomes of what it says.
    with suppress(OSError):
        os.write(descriptor, cause.encode(errors="replace")[:_CAUSE_BYTES_MAX])
        os.fsync(descriptor)
    with suppress(OSError):
        os.close(descriptor)
    with suppress(OSError):
        sync_directory(directory)


def refuse_marked(directory: Path) -> None:
    """Raises IndexDamagedError for an index that is marked.

    Raises IndexFailure where the mark cannot be read: an index that may not be read is not damaged.
    """
    file = directory / DAMAGE_FILE
    try:
        os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise IndexFailure(
            f"cannot tell whether the index in {directory} is marked as damaged: {error}"
        ) from error
    cause = b""
    with suppress(OSError):
        cause = file.read_bytes()
    said = cause.decode(errors="replace") or "a read or write has met damage"
    raise IndexDamagedError(f"the index in {directory} was found damaged while served: {said}")
