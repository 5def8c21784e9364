"""Indexes as a service leaves them."""

from pathlib import Path

import pytest

from kvstored.store.index import Index
from kvstored.store.index_aside import end_build
from kvstored.store.index_service import close_cleanly, open_for_service
from tests.kvstored.store.index_stores import MAP_BYTES
from tests.kvstored.store.served_index import COUNT, fill, ignore, table_of


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
