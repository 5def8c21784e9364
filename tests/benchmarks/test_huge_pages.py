"""Huge pages that are granted for the time of a benchmark."""

from pathlib import Path

import pytest

from benchmarks.huge_pages import huge_pages


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool"
    path.write_text("3\n")
    return path


def test_the_pool_is_raised_and_set_back(pool: Path) -> None:
    with huge_pages(9 * 1024 * 1024, pool) as is_granted:
        assert is_granted
        assert pool.read_text() == "5\n"
    assert pool.read_text() == "3\n"


def test_a_pool_that_is_large_enough_stays(pool: Path) -> None:
    with huge_pages(6 * 1024 * 1024, pool) as is_granted:
        assert is_granted
        assert pool.read_text() == "3\n"


def test_without_the_right_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = tmp_path / "pool"
    with huge_pages(1, pool) as is_granted:
        assert not is_granted
    pool.write_text("0\n")

    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    with huge_pages(1, pool) as is_granted:
        assert not is_granted
    assert pool.read_text() == "0\n"
