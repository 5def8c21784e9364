"""Each thing that can be wrong or slow is found, and nothing else with it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvstored.doctor.facts import Facts, PlaceKind
from kvstored.doctor.finding import Finding, Verdict
from kvstored.doctor.judge import judge
from kvstored.doctor.needs import IoUringNeed
from tests.kvstored.doctor.machines import DEVICE, FACTS, GIB, INDEX, MACHINE, NEEDS, SOCKETS


def faults(facts: Facts, **needs: Any) -> list[tuple[str, Verdict]]:
    """Subjects and verdicts of all that is not good; each has a remedy."""
    found = [
        one for one in judge(facts, replace(NEEDS, **needs)) if one.verdict is not Verdict.GOOD
    ]
    assert all(one.remedy for one in found)
    return [(one.subject, one.verdict) for one in found]


def of_machine(**changes: Any) -> Facts:
    return replace(FACTS, machine=replace(MACHINE, **changes))


def of_device(**changes: Any) -> Facts:
    return replace(FACTS, devices=(replace(DEVICE, **changes),))


def of_index(**changes: Any) -> Facts:
    return replace(FACTS, index=replace(INDEX, **changes))


def test_a_good_machine_has_no_faults() -> None:
    assert faults(FACTS) == []
    assert {one.subject for one in judge(FACTS, NEEDS)} == {
        "kernel",
        "io_uring",
        "open files",
        "clock",
        "memory",
        "huge pages",
        "index in /index",
        "/nvme0/kvstored",
        "sockets in /run/kvstored",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kernel_release": "5.13.9"}, [("kernel", Verdict.WRONG)]),
        ({"kernel_release": "5.14"}, []),
        ({"kernel_release": "strange"}, []),
        ({"io_uring_error": "Operation not permitted"}, [("io_uring", Verdict.NOTE)]),
        ({"open_files_max": 511}, [("open files", Verdict.NOTE)]),
        ({"is_clock_set": False}, [("clock", Verdict.NOTE)]),
        ({"is_clock_set": None}, []),
        ({"physical_bytes": 7 * GIB}, [("memory", Verdict.WRONG)]),
        ({"group_room_bytes": 7 * GIB}, [("memory", Verdict.WRONG)]),
        ({"group_room_bytes": 8 * GIB}, []),
        ({"available_bytes": 7 * GIB}, [("memory", Verdict.NOTE)]),
        ({"huge_page_pool_bytes": 0}, [("huge pages", Verdict.NOTE)]),
    ],
    ids=str,
)
def test_machine(changes: dict[str, Any], expected: list[tuple[str, Verdict]]) -> None:
    assert faults(of_machine(**changes)) == expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        (IoUringNeed.NONE, []),
        (IoUringNeed.WELCOME, [("io_uring", Verdict.NOTE)]),
        (IoUringNeed.REQUIRED, [("io_uring", Verdict.WRONG)]),
    ],
)
def test_a_missing_io_uring_matters_as_far_as_it_is_asked_for(
    need: IoUringNeed, expected: list[tuple[str, Verdict]]
) -> None:
    assert faults(of_machine(io_uring_error="no"), io_uring=need) == expected


WRONG, NOTE = ("/nvme0/kvstored", Verdict.WRONG), ("/nvme0/kvstored", Verdict.NOTE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": PlaceKind.OTHER}, [WRONG]),
        ({"kind": PlaceKind.ABSENT, "free_bytes": None}, [WRONG]),
        ({"kind": PlaceKind.ABSENT, "free_bytes": 99 * GIB}, [WRONG]),
        ({"kind": PlaceKind.ABSENT, "free_bytes": 100 * GIB}, [NOTE]),
        ({"kind": PlaceKind.ABSENT, "free_bytes": 100 * GIB, "is_usable": False}, [WRONG]),
        ({"kind": PlaceKind.BLOCK_DEVICE}, []),
        ({"is_usable": False}, [WRONG]),
        ({"alignment_bytes": None}, [WRONG]),
        ({"alignment_bytes": 8192}, [WRONG]),
        ({"size_bytes": 99 * GIB}, [WRONG]),
        ({"is_rotational": True}, [NOTE]),
        ({"write_cache": "write through"}, [NOTE]),
        ({"write_cache": ""}, []),
    ],
    ids=str,
)
def test_device(changes: dict[str, Any], expected: list[tuple[str, Verdict]]) -> None:
    assert faults(of_device(**changes)) == expected


def test_devices_that_share_a_drive_are_noted_once() -> None:
    second = replace(DEVICE, path=Path("/nvme0/other"))
    third = replace(DEVICE, path=Path("/nvme1/kvstored"), drive="nvme1n1")
    unknown = [replace(DEVICE, path=Path(f"/memory/{number}"), drive="") for number in range(2)]
    facts = replace(FACTS, devices=(DEVICE, second, third, *unknown))
    assert faults(facts) == [("drive nvme0n1", Verdict.NOTE)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"is_writable": False}, [("index in /index", Verdict.WRONG)]),
        ({"is_in_memory": True}, [("index in /index", Verdict.WRONG)]),
        ({"free_bytes": 15 * GIB}, [("index in /index", Verdict.NOTE)]),
    ],
    ids=str,
)
def test_index(changes: dict[str, Any], expected: list[tuple[str, Verdict]]) -> None:
    assert faults(of_index(**changes)) == expected


def test_sockets() -> None:
    closed = replace(SOCKETS, path=Path("/other"), is_writable=False)
    facts = replace(FACTS, sockets=(SOCKETS, closed))
    assert faults(facts) == [("sockets in /other", Verdict.WRONG)]


@pytest.mark.parametrize("changes", [{"group_room_bytes": GIB}, {"available_bytes": GIB}], ids=str)
def test_a_daemon_that_runs_was_called_wrong_for_the_memory_that_it_has(
    changes: dict[str, Any],
) -> None:
    assert faults(of_machine(**changes)) != []
    assert faults(replace(of_machine(**changes), is_serving=True)) == []


def test_new_devices_that_fit_only_one_by_one_were_called_good() -> None:
    new = replace(DEVICE, kind=PlaceKind.ABSENT, free_bytes=150 * GIB, file_system=7, drive="")
    other = replace(new, path=Path("/other"))
    assert faults(replace(FACTS, devices=(new, replace(other, file_system=8)))) == [
        ("/nvme0/kvstored", Verdict.NOTE),
        ("/other", Verdict.NOTE),
    ]
    assert faults(replace(FACTS, devices=(new, other))) == [
        ("/nvme0/kvstored", Verdict.WRONG),
        ("/other", Verdict.WRONG),
    ]


def test_findings_come_in_the_order_of_a_start() -> None:
    subjects = [one.subject for one in judge(FACTS, NEEDS)]
    assert subjects[0] == "kernel"
    assert subjects.index("index in /index") < subjects.index("/nvme0/kvstored")
    assert isinstance(judge(FACTS, NEEDS)[0], Finding)
