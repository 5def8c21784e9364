"""Indexes as a service leaves them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.store.index.aside import end_build
from kvstored.store.index.index import Index
from kvstored.store.index.service import close_cleanly, open_for_service
from tests.kvstored.store.index_stores import MAP_BYTES
from tests.kvstored.store.served_index import COUNT, fill, ignore, table_of
from tests.support.memory_folder import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: an index that is flushed to a disk takes these tests several times as long."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def device_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """On a disk: not every kernel has O_DIRECT in memory."""
    return tmp_path_factory.mktemp("devices")


@pytest.fixture
def unclean(tmp_path: Path) -> Path:
    """An index that was never closed for the marker."""
    path = tmp_path / "index"
    index = open_for_service(path, MAP_BYTES, ignore).index
    fill(index)
    end_build(path)
    index.close()
    return path


@pytest.fixture
def clean(unclean: Path) -> Path:
    """An index that was closed in order, with its snapshot."""
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    close_cleanly(index, table_of(), COUNT + 1)
    return unclean
