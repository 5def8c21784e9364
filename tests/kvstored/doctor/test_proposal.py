import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvstored.doctor.facts import DevicePlace, PlaceKind
from kvstored.doctor.proposal import (
    ARENA_BYTES_MOST,
    LARGE_SLAB_BYTES,
    SLAB_BYTES,
    ProposalError,
    propose,
    text_of,
)
from tests.kvstored.doctor.machines import DEVICE, GIB, MACHINE

MIB = 1024 * 1024
INDEX = Path("/index")
ABSENT = DevicePlace(
    path=Path("/data/a"), kind=PlaceKind.ABSENT, free_bytes=100 * GIB, file_system=7
)


def proposed(*devices: DevicePlace, index_free_bytes: int = 100 * GIB, **machine: Any) -> Any:
    return propose(replace(MACHINE, **machine), devices, INDEX, index_free_bytes=index_free_bytes)


def test_memory_is_left_to_the_engine() -> None:
    assert proposed(DEVICE).dram_bytes == proposed(DEVICE).arenas_bytes == 8 * GIB
    assert proposed(DEVICE, group_room_bytes=20 * GIB).dram_bytes == 5 * GIB
    assert proposed(DEVICE, available_bytes=1300 * MIB).dram_bytes == 325 * MIB


def test_files_on_one_file_system_share_its_free_space() -> None:
    other = replace(ABSENT, path=Path("/data/b"))
    assert proposed(ABSENT).device_bytes == 80 * GIB
    assert proposed(ABSENT, other).device_bytes == 40 * GIB
    assert proposed(ABSENT, replace(other, file_system=8)).device_bytes == 80 * GIB


def test_all_devices_are_as_large_as_the_smallest() -> None:
    block = replace(DEVICE, kind=PlaceKind.BLOCK_DEVICE, size_bytes=50 * GIB)
    assert proposed(ABSENT, block).device_bytes == 50 * GIB


def test_large_devices_have_large_slabs() -> None:
    assert proposed(ABSENT).slab_bytes == SLAB_BYTES
    assert proposed(DEVICE).slab_bytes == LARGE_SLAB_BYTES


def test_the_index_fits_its_file_system() -> None:
    assert proposed(DEVICE).index_bytes == 16 * GIB
    assert proposed(DEVICE, index_free_bytes=10 * GIB).index_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("device", "machine", "words"),
    [
        (replace(DEVICE, kind=PlaceKind.OTHER), {}, "neither a file nor a block device"),
        (replace(ABSENT, free_bytes=None), {}, "there is no folder /data"),
        (replace(ABSENT, free_bytes=100 * MIB), {}, "has room for 80 MiB"),
        (ABSENT, {"available_bytes": 200 * MIB}, "200 MiB of memory are free"),
    ],
    ids=str,
)
def test_what_fits_nothing(device: DevicePlace, machine: dict[str, Any], words: str) -> None:
    with pytest.raises(ProposalError, match=words):
        proposed(device, **machine)


def test_the_file_says_what_was_chosen() -> None:
    strange = replace(ABSENT, path=Path('/data/a "b" \\c'))
    document = tomllib.loads(text_of(proposed(strange), sockets=Path("/run/kvstored")))
    assert document["store"]["devices"] == ['/data/a "b" \\c']
    assert document["store"]["device_bytes"] == "80GiB"
    assert document["store"]["slab_bytes"] == "65MiB"
    assert document["server"]["socket"] == "/run/kvstored/kvstored.sock"
    assert document["server"]["arena_bytes_max"] == f"{ARENA_BYTES_MOST // GIB}GiB"
