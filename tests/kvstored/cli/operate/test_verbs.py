"""The verbs of operators against a real daemon."""

import time

import pytest

from kvstored_client import Client, StoreError
from tests.kvstored.cli.operate.conftest import Verb, metrics_socket, store_sequence
from tests.support.daemon import MIB, DaemonProcess
from tests.support.waiting import PATIENCE_S, POLL_S
from tests.support.web import get


def test_warm_brings_what_is_on_the_devices_into_dram(operated: DaemonProcess, verb: Verb) -> None:
    with Client(operated.socket_path, strict=True) as client:
        keys = store_sequence(client, "warm", 5)
    assert verb("warm", "--sequence", "warm") == (
        0,
        {"loaded_chunks": 0, "resident_chunks": 5, "left_chunks": 0},
    )
    operated.terminate()
    operated.start()
    prefix = keys[0][:5].hex()
    assert not any(row["in_dram"] for row in verb("ls", prefix)[1]["rows"])
    assert verb("warm", "--prefix", prefix)[1]["loaded_chunks"] == 5
    assert all(row["in_dram"] for row in verb("ls", prefix)[1]["rows"])
    assert verb("stats")[1]["warmed_chunks"] == 5


def test_what_is_meant_must_be_there(verb: Verb) -> None:
    status, sentence = verb("warm", "--sequence", "absent")
    assert status == 2
    assert "no sequence 'absent'" in sentence
    status, sentence = verb("pin", "--prefix", "ab" * 20)
    assert status == 2
    assert "no stored chunk" in sentence
    status, sentence = verb("warm", "--prefix", "ab", "--namespace", "elsewhere")
    assert status == 2
    with pytest.raises(SystemExit):
        verb("warm")


def test_pins_keep_chunks_and_end(operated: DaemonProcess, verb: Verb) -> None:
    with Client(operated.socket_path, strict=True) as client:
        store_sequence(client, "pinned", 3)
    status, pinned = verb("pin", "--sequence", "pinned", "--for", "1h")
    assert (status, pinned["pinned_chunks"], pinned["absent_chunks"]) == (0, 3, 0)
    assert verb("stats")[1]["pinned_chunk_count"] == 3
    (row,) = verb("pin")[1]["rows"]
    assert (row["pin_id"], row["what"], row["chunks"]) == (pinned["pin_id"], "sequence pinned", 3)
    assert 3500 < row["ends_in_s"] <= 3600
    assert verb("unpin", str(pinned["pin_id"])) == (0, {"pins": 1, "chunks": 3})
    assert verb("stats")[1]["pinned_chunk_count"] == 0
    status, sentence = verb("unpin", str(pinned["pin_id"]))
    assert (status, "unknown or has ended" in sentence) == (2, True)


def test_a_pin_of_nothing_printed_a_number_that_ended_all_pins(
    operated: DaemonProcess, verb: Verb
) -> None:
    """Bug: it was 0, and `kvstored unpin 0` ended those of all operators."""
    with Client(operated.socket_path, strict=True) as client:
        store_sequence(client, "stays", 2)
        client.delete(store_sequence(client, "gone", 2))
    verb("pin", "--sequence", "stays")
    status, report = verb("pin", "--sequence", "gone")
    assert (status, report) == (1, {"pinned_chunks": 0, "absent_chunks": 2})
    for number in ("0", "-5", "99999999999999999999"):
        with pytest.raises(SystemExit) as ended:
            verb("unpin", number)
        assert ended.value.code == 2
    assert len(verb("pin")[1]["rows"]) == 1
    assert verb("unpin", "--all") == (0, {"pins": 1, "chunks": 2})


@pytest.mark.parametrize("limit", ["-1", "0", "many", "4294967296"])
def test_a_limit_that_is_no_number_was_a_traceback(
    verb: Verb, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    """Bug: the message could not be built."""
    with pytest.raises(SystemExit) as ended:
        verb("ls", "--limit", limit)
    assert ended.value.code == 2
    assert "no whole number from 1 to 10000" in capsys.readouterr().err


def test_a_pin_expires_and_all_end_together(operated: DaemonProcess, verb: Verb) -> None:
    with Client(operated.socket_path, strict=True) as client:
        store_sequence(client, "expires", 2)
    assert verb("pin", "--sequence", "expires", "--for", "0.3s")[0] == 0
    deadline = time.monotonic() + PATIENCE_S
    while verb("pin")[1]["rows"]:
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    assert verb("stats")[1]["pinned_chunk_count"] == 0
    verb("pin", "--sequence", "expires")
    verb("pin", "--sequence", "expires")
    assert verb("unpin", "--all") == (0, {"pins": 2, "chunks": 4})


def test_quota_shows_and_changes(verb: Verb) -> None:
    status, shown = verb("quota", "default")
    assert (status, shown["rows"][0]["dram_limit_bytes"]) == (0, 48 * MIB)
    _, changed = verb("quota", "default", "--dram-limit", "32MiB", "--device-guaranteed", "8MiB")
    assert changed["rows"][0]["dram_limit_bytes"] == 32 * MIB
    assert changed["rows"][0]["device_guaranteed_bytes"] == 8 * MIB
    assert verb("quotas")[1]["rows"][0]["dram_limit_bytes"] == 32 * MIB
    _, freed = verb("quota", "default", "--dram-limit", "none", "--device-guaranteed", "none")
    assert freed["rows"][0]["dram_limit_bytes"] == 0
    for arguments, part in (
        (("elsewhere", "--dram-limit", "1MiB"), "restart"),
        (("elsewhere",), "has no quota of its own"),
        (("default", "--dram-limit", "much"), "--dram-limit"),
        (("default", "--device-limit", "1,5TiB"), "--device-limit is '1,5TiB'; write a size"),
        (("default", "--device-limit", "0"), "write none for no limit"),
        (("default", "--dram-limit", "99999999PiB"), "more than any tier has"),
        (("default", "--dram-limit", "1MiB", "--dram-guaranteed", "2MiB"), "below"),
        (("default", "--device-guaranteed", "1TiB"), "lower one"),
    ):
        status, sentence = verb("quota", *arguments)
        assert (status, part in sentence) == (2, True), sentence


def test_top_looks_once(operated: DaemonProcess, verb: Verb) -> None:
    status, look = verb("top", "--once", "--interval", "0.1s")
    assert status == 0
    assert [device["path"] for device in look["devices"]] == [
        str(path) for path in operated.devices
    ]
    assert look["dram_capacity_bytes"] == 64 * MIB
    assert [one["name"] for one in look["namespaces"]] == ["default", ""]


def test_drain_refuses_what_is_new_and_keeps_what_was(operated: DaemonProcess, verb: Verb) -> None:
    with Client(operated.socket_path, strict=True) as client:
        store_sequence(client, "before", 2)
        status, drained = verb("drain", "--timeout", "30s")
        assert (status, drained["draining"], drained["staged_chunks"]) == (0, True, 0)
        with pytest.raises(StoreError, match="operator drains"):
            store_sequence(client, "during", 2)
        before = client.sequences.get("before")
        assert before is not None
        assert len(before.keys) == 2
        with pytest.raises(StoreError), Client(operated.socket_path, strict=True) as other:
            other.sequences.list()
        assert get(metrics_socket(operated), "/readyz") == (
            503,
            "draining\nan operator drains it; `kvstored drain --resume` ends that\n",
        )
        assert verb("drain", "--resume")[1]["draining"] is False
        assert get(metrics_socket(operated), "/readyz")[0] == 200
        store_sequence(client, "after", 2)
