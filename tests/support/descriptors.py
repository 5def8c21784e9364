"""The descriptors of the test process."""

import gc
from pathlib import Path


def open_descriptors() -> set[tuple[str, str]]:
    """Number and target of each open descriptor.

    A test compares by ``open_descriptors() - before``: threads of earlier tests may close
    theirs meanwhile, so only new ones tell of a leak.
    """
    gc.collect()
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add((path.name, str(path.readlink())))
        except FileNotFoundError:  # the descriptor of this very listing, or of a thread's end
            continue
    return found
