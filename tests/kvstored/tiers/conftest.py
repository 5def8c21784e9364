"""Fixtures of the tests of the tiers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import StoreUnderTest, open_store


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with open_store(tmp_path) as store:
        yield store
