"""A talker whose store is in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.quality.run import Lab, open_lab
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.memory import make_store


@contextmanager
def lab_in_memory(directory: Path) -> Iterator[Lab]:
    with MemoryClient(make_store()) as client:
        yield open_lab(client, directory)
