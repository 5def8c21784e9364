"""The environment in which the daemon copies and allocates."""

import asyncio
import ctypes
import os
import sys
import threading

import pytest

from kvstored.c_library import VARIABLE, restart_tuned, return_free_memory, tuned_environment

COPIES = "glibc.cpu.x86_non_temporal_threshold=0x80000"
HEAPS = "glibc.malloc.arena_max=2:glibc.malloc.tcache_count=0"


def test_the_tunables_are_added_once() -> None:
    environment = tuned_environment({"HOME": "/h"})
    assert environment == {"HOME": "/h", VARIABLE: f"{COPIES}:{HEAPS}"}
    assert tuned_environment(environment) is None


def test_what_a_person_has_set_stays() -> None:
    huge_pages = "glibc.malloc.hugetlb=1"
    assert tuned_environment({VARIABLE: huge_pages}) == {VARIABLE: f"{huge_pages}:{COPIES}:{HEAPS}"}
    own = "glibc.cpu.x86_non_temporal_threshold=0x4040"
    assert tuned_environment({VARIABLE: own}) == {VARIABLE: f"{own}:{HEAPS}"}
    assert tuned_environment({VARIABLE: f"{own}:{HEAPS.replace('=2', '=8')}"}) is None


def test_the_command_is_run_again_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *run: runs.append(run))
    monkeypatch.delenv(VARIABLE, raising=False)
    restart_tuned()
    assert runs == [(sys.executable, sys.orig_argv, {**os.environ, VARIABLE: f"{COPIES}:{HEAPS}"})]
    monkeypatch.setenv(VARIABLE, runs[0][2][VARIABLE])
    restart_tuned()
    assert len(runs) == 1


async def test_heaps_give_free_memory_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    twice, pads = threading.Semaphore(0), []

    class Library:
        def malloc_trim(self, pad: int) -> int:
            pads.append(pad)
            twice.release()
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library())
    task = asyncio.create_task(return_free_memory(interval_s=0.001))
    for _ in range(2):
        await asyncio.to_thread(twice.acquire)
    task.cancel()
    assert set(pads) == {0}


async def test_a_c_library_that_keeps_its_heaps_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await return_free_memory(interval_s=0.001)
