"""Layouts that a real daemon refuses."""

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from engine_adapters.layout_check import LayoutCheck, refusal_of
from kvstored_client import Client, LayerState, StateKind, StateLayout
from tests.support.daemon import MIB, DaemonProcess

LOGGER = logging.getLogger("tests.layout_check")
SMALL = StateLayout(
    model="m", dtype="float32", layers=(LayerState(StateKind.KV, 4096),), chunk_tokens=64
)
OF_MANY_BYTES = replace(SMALL, layers=(LayerState(StateKind.KV, 65_536),) * 2)
ENCODED = replace(SMALL, layers=(LayerState(StateKind.KV, 49_152),), codec="zstd")

Messages = Callable[[], list[str]]


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Messages:
    return lambda: [record.message for record in caplog.records if record.name == LOGGER.name]


@pytest.mark.parametrize(
    ("layout", "setting"), [(OF_MANY_BYTES, "slab_bytes"), (ENCODED, "read_bytes_max")]
)
def test_refused_layout_is_told_once(
    shared_daemon: DaemonProcess, messages: Messages, layout: StateLayout, setting: str
) -> None:
    """Bug: every save and look-up failed by itself, and the engine went on trying."""
    with Client(shared_daemon.socket_path, arena_bytes="1MiB") as client:
        assert client.available()
        check = LayoutCheck(client, [SMALL, layout], LOGGER)
        assert check.is_refused()
        assert check.is_refused()
        assert messages() == [refusal_of(layout)]
        assert str(layout.chunk_bytes()) in messages()[0]
        assert f"smaller chunk_tokens, or give the daemon a larger {setting}" in messages()[0]
        assert client.counters == {"connects": 1}


def test_layout_that_fits_is_not_told(shared_daemon: DaemonProcess, messages: Messages) -> None:
    with Client(shared_daemon.socket_path, arena_bytes="1MiB", strict=True) as client:
        assert client.available()
        assert not LayoutCheck(client, [SMALL], LOGGER).is_refused()
        assert messages() == []


def test_a_new_format_was_not_asked(daemon: DaemonProcess, messages: Messages) -> None:
    """What the sentence advises, larger slabs, begins with epoch 1 again: it was not seen."""
    with Client(daemon.socket_path, arena_bytes="1MiB", reconnect_interval_s=0.0) as client:
        check = LayoutCheck(client, [OF_MANY_BYTES], LOGGER)
        assert client.available()
        assert check.is_refused()
        daemon.kill()
        for path in daemon.devices:
            path.unlink()
        shutil.rmtree(daemon.index)
        daemon.configure({"store": {"slab_bytes": 32 * MIB}})
        daemon.format()
        daemon.start()
        assert client.available()
        assert client.epoch == 1
        assert not check.is_refused()
        assert messages() == [refusal_of(OF_MANY_BYTES)]


def test_two_checks_of_one_client(shared_daemon: DaemonProcess, messages: Messages) -> None:
    """Bug: a layout was taken for refused when another one was meanwhile."""
    with Client(shared_daemon.socket_path, arena_bytes="1MiB") as client:
        assert client.available()
        checks = [LayoutCheck(client, [layout], LOGGER) for layout in (SMALL, ENCODED)] * 8
        with ThreadPoolExecutor(len(checks)) as pool:
            refused = list(pool.map(LayoutCheck.is_refused, checks))
        assert refused == [False, True] * 8
        assert messages() == [refusal_of(ENCODED)]


def test_next_daemon_is_asked_again(daemon: DaemonProcess, messages: Messages) -> None:
    """Bug: what one daemon had refused was not tried again with one that has other limits."""
    with Client(daemon.socket_path, arena_bytes="1MiB", reconnect_interval_s=0.0) as client:
        check = LayoutCheck(client, [ENCODED], LOGGER)
        assert not check.is_refused(), "nobody was asked yet"
        assert client.available()
        assert check.is_refused()
        daemon.kill()
        assert not check.is_refused()
        daemon.start()
        assert client.available()
        assert check.is_refused()
        daemon.kill()
        daemon.configure({"io": {"read_bytes_max": 4 * MIB}})
        daemon.start()
        assert client.available()
        assert not check.is_refused()
        assert messages() == [refusal_of(ENCODED)]
