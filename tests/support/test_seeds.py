"""What chance chooses comes from one number, which the report of a failure names."""

import os

import pytest

from tests.support import seeds


def test_a_seed_is_drawn_once_for_all_processes_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.VARIABLE, "")
    monkeypatch.delenv(seeds.VARIABLE)
    chosen = seeds.drawn()
    assert seeds.drawn() == seeds.seed() == int(os.environ[seeds.VARIABLE]) == chosen


def test_a_seed_that_was_given_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(seeds.VARIABLE, "7")
    assert seeds.seed() == 7
    assert seeds.of_command(None) == 7
    assert seeds.of_command(8) == 8
    monkeypatch.setenv(seeds.VARIABLE, "x")
    with pytest.raises(ValueError, match="'x'"):
        seeds.seed()


def test_who_asks_for_the_seed_is_seen() -> None:
    assert not seeds.USE.is_asked
    seeds.drawn()
    assert not seeds.USE.is_asked
    seeds.seed()
    assert seeds.USE.is_asked
