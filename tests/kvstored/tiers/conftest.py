"""Fixtures of the tests of the tiers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory_folder import memory_folder
from tests.support.rows import MIXED
from tests.support.stores import MIB, StoreUnderTest, open_store
from tests.support.waiting import wait_until


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: an index that is flushed to a disk takes these tests several times as long."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with open_store(tmp_path) as store:
        yield store


@pytest.fixture
def opened_rows(tmp_path: Path) -> Iterator[StoreUnderTest]:
    """A store that knows the layout of the rows."""
    with open_store(tmp_path, dram_bytes=4 * MIB) as store:
        store.store.layouts.register(MIXED)
        wait_until(lambda: store.store._store.index.layout(MIXED.layout_id) is not None)
        yield store
