"""The environment in which the daemon copies."""

import os
import sys

import pytest

from kvstored import streaming_copies
from kvstored.streaming_copies import (
    TUNABLE,
    VARIABLE,
    restart_with_streaming_copies,
    with_streaming_copies,
)


def test_the_tunable_is_added_once() -> None:
    environment = with_streaming_copies({"HOME": "/h"})
    assert environment == {"HOME": "/h", VARIABLE: f"{TUNABLE}=0x100000"}
    assert with_streaming_copies(environment) is None


def test_what_a_person_has_set_stays() -> None:
    environment = with_streaming_copies({VARIABLE: "glibc.malloc.hugetlb=1"})
    assert environment == {VARIABLE: f"glibc.malloc.hugetlb=1:{TUNABLE}=0x100000"}
    assert with_streaming_copies({VARIABLE: f"{TUNABLE}=0x4040"}) is None


def test_the_command_is_run_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(streaming_copies.os, "execve", lambda *run: runs.append(run))
    monkeypatch.delenv(VARIABLE, raising=False)
    restart_with_streaming_copies()
    assert runs == [
        (sys.executable, sys.orig_argv, {**os.environ, VARIABLE: f"{TUNABLE}=0x100000"})
    ]
    monkeypatch.setenv(VARIABLE, runs[0][2][VARIABLE])
    restart_with_streaming_copies()
    assert len(runs) == 1
