from pathlib import Path

import pytest

from kvstored_client import Client, OptionError
from kvstored_client.session.options import DEFAULT_SOCKET, parse_bytes, resolve_socket, whole_pages
from kvstored_contract.limits import HUGE_PAGE_BYTES


@pytest.mark.parametrize(
    ("size", "byte_count"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("1B", 1),
        ("2KiB", 2048),
        (" 3 MiB ", 3 << 20),
        ("1GiB", 1 << 30),
    ],
)
def test_sizes(size: int | str, byte_count: int) -> None:
    assert parse_bytes(size) == byte_count


@pytest.mark.parametrize("size", ["", "1.5GiB", "-1", "1GB", "many"])
def test_what_is_no_size_is_refused_by_name(size: str) -> None:
    with pytest.raises(OptionError, match="write it like 256MiB"):
        parse_bytes(size)


@pytest.mark.parametrize(
    ("wanted_bytes", "asked_bytes"),
    [
        (1, 4096),
        (4097, 8192),
        (HUGE_PAGE_BYTES - 4096, HUGE_PAGE_BYTES - 4096),
        (HUGE_PAGE_BYTES + 1, 2 * HUGE_PAGE_BYTES),
    ],
)
def test_arenas_are_whole_pages_and_whole_huge_pages_if_large(
    wanted_bytes: int, asked_bytes: int
) -> None:
    assert whole_pages(wanted_bytes) == asked_bytes


def test_the_socket_is_given_or_in_the_environment_or_the_services() -> None:
    environment = {"KVSTORED_SOCKET": "/there"}
    assert resolve_socket("/here", environment) == Path("/here")
    assert resolve_socket(None, environment) == Path("/there")
    assert resolve_socket(None, {}) == Path(DEFAULT_SOCKET)


def test_a_client_refuses_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="arena_bytes"):
        Client(arena_bytes=0)
    with pytest.raises(OptionError, match="name"):
        Client(name="x" * 101)
    with pytest.raises(OptionError, match="reconnect_interval_s"):
        Client(reconnect_interval_s=-1)
