"""The verbs against real devices and a real daemon."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstored.cli.main import main
from kvstored.store.index.index_lock import IndexLock
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    StateKind,
    StateLayout,
)
from tests.support.daemon import MIB, DaemonProcess


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[DaemonProcess]:
    """Configured, neither formatted nor started."""
    process = DaemonProcess(tmp_path)
    yield process
    process.close()


def answer(process: DaemonProcess, *arguments: str) -> dict[str, Any]:
    """The JSON that a verb prints."""
    result = process.run_verb(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def refusal(process: DaemonProcess, *arguments: str) -> str:
    """The one sentence with which a verb refuses."""
    result = process.run_verb(*arguments)
    assert result.returncode == 2, result.stdout
    assert result.stdout == ""
    assert result.stderr.startswith(f"kvstored {arguments[0]}: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def test_format(fresh: DaemonProcess) -> None:
    document = answer(fresh, "format")
    assert len(document["set_id"]) == 32
    assert [row["device"] for row in document["rows"]] == [str(path) for path in fresh.devices]
    assert all(path.stat().st_size == 128 * MIB for path in fresh.devices)
    assert all(path.stat().st_blocks * 512 >= 128 * MIB for path in fresh.devices)


def test_format_loses_nothing_unless_forced(fresh: DaemonProcess) -> None:
    first = answer(fresh, "format")
    assert "force" in refusal(fresh, "format")
    assert answer(fresh, "format", "--force")["set_id"] != first["set_id"]


def test_format_takes_the_index_into_account(fresh: DaemonProcess) -> None:
    fresh.format()
    fresh.start()
    assert fresh.terminate() == 0
    for path in fresh.devices:
        path.unlink()
    assert "holds the index" in refusal(fresh, "format")
    answer(fresh, "format", "--force")
    fresh.start()
    assert fresh.terminate() == 0


def test_format_leaves_a_running_daemon_alone(shared_daemon: DaemonProcess) -> None:
    epoch = answer(shared_daemon, "ping")["epoch"]
    assert "another process" in refusal(shared_daemon, "format", "--force")
    assert answer(shared_daemon, "ping")["epoch"] == epoch


def test_format_removed_the_index_of_a_daemon_with_other_devices(fresh: DaemonProcess) -> None:
    """Bug: what kept a second daemon, or ``format``, out were locks of the devices alone."""
    fresh.format()
    with IndexLock(fresh.index):
        mark = fresh.index / "UNFINISHED"
        mark.touch()
        sentence = refusal(fresh, "format", "--force")
        assert f"another process serves from the index in {fresh.index};" in sentence
        assert mark.exists()
    answer(fresh, "format", "--force")
    assert not mark.exists()


def test_ping_stats_ls_inspect(daemon: DaemonProcess) -> None:
    ping = answer(daemon, "ping")
    assert (ping["epoch"], ping["namespace"], ping["admin"]) == (1, "default", True)
    stats = answer(daemon, "stats")
    while stats["session_count"] > 1 or stats["arenas_used_bytes"] > 4096:
        # The daemon hears of the end of a session when it reads it.
        stats = answer(daemon, "stats")
    assert (stats["epoch"], stats["chunk_count"], stats["session_count"]) == (1, 0, 1)
    assert (stats["arenas_used_bytes"], stats["arenas_capacity_bytes"]) == (4096, 16 << 30)
    assert (stats["lease_count"], stats["pinned_chunk_count"]) == (0, 0)
    assert (stats["reads_in_flight_count"], stats["index_failed"]) == (0, False)
    assert [row["path"] for row in stats["rows"]] == [str(path) for path in daemon.devices]
    assert answer(daemon, "ls") == {"truncated": False, "rows": []}
    assert "no stored chunk" in refusal(daemon, "inspect", "ab")
    assert "hexadecimal" in refusal(daemon, "ls", "xyz")


def test_inspect_shows_the_kind_of_every_layer(shared_daemon: DaemonProcess) -> None:
    layers = (LayerState(StateKind.HIDDEN, 64), LayerState(StateKind.KV, 128))
    layout = StateLayout(model="mixed", dtype="float32", layers=layers, chunk_tokens=16)
    with Client(shared_daemon.socket_path) as client:
        region = client.allocate(Placement.contiguous_bytes(layout, 1))
        assert region is not None
        key = b"inspect".ljust(32)
        report = client.put(
            layout,
            [NewChunk(key=key, token_count=16)],
            Placement.contiguous(region, layout),
            ack=Ack.DURABLE,
        )
        assert report.stored_count == 1
    document = answer(shared_daemon, "inspect", key.hex())
    assert (document["model"], document["dtype"]) == ("mixed", "float32")
    assert [(row["kind"], row["token_bytes"], row["bytes"]) for row in document["rows"]] == [
        ("hidden", 64, 1024),
        ("kv", 128, 2048),
    ]


@pytest.mark.parametrize("verb", ["ping", "stats", "ls"])
def test_without_a_daemon(fresh: DaemonProcess, verb: str) -> None:
    assert "kvstored run" in refusal(fresh, verb)


def test_check(daemon: DaemonProcess) -> None:
    assert "another process" in refusal(daemon, "check")
    assert daemon.terminate() == 0
    document = answer(daemon, "check")
    assert (document["sound"], document["problem_count"]) == (True, 0)


def test_check_called_a_store_damaged_that_had_never_started(fresh: DaemonProcess) -> None:
    """Bug: there is no index before the first start, and none was an unsound one."""
    fresh.format()
    assert f"there is no index in {fresh.index} yet; the next start" in refusal(fresh, "check")


def test_check_finds_a_damaged_superblock(daemon: DaemonProcess) -> None:
    assert daemon.terminate() == 0
    with daemon.devices[1].open("r+b") as file:
        file.seek(-4096 + 40, 2)
        byte = file.read(1)[0]
        file.seek(-4096 + 40, 2)
        file.write(bytes([byte ^ 1]))
    result = daemon.run_verb("check", "--json")
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["problem_count"] == 1
    assert document["rows"][0]["kind"] == "superblock"
    assert str(daemon.devices[1]) in document["rows"][0]["where"]


def test_bench_leaves_devices_and_folder_as_they_were(fresh: DaemonProcess) -> None:
    fresh.format()
    before = {path: path.stat().st_mtime_ns for path in fresh.folder.iterdir()}
    document = answer(fresh, "bench", "--bytes", "8MiB")
    assert document["total_bytes"] == 16 * MIB
    assert document["write_gb_per_s"] > 0
    assert document["read_gb_per_s"] > 0
    assert {path: path.stat().st_mtime_ns for path in fresh.folder.iterdir()} == before


def test_bench_refuses(fresh: DaemonProcess) -> None:
    assert "512MiB" in refusal(fresh, "bench", "--bytes", "much")
    assert "at least" in refusal(fresh, "bench", "--bytes", "1KiB")
    Path(f"{fresh.devices[1]}.bench").write_text("")
    assert "exists" in refusal(fresh, "bench", "--bytes", "8MiB")
    assert not Path(f"{fresh.devices[0]}.bench").exists()


def test_a_verb_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as info:
        main([])
    assert info.value.code == 2
    assert "VERB" in capsys.readouterr().err


def test_missing_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--config", str(tmp_path / "absent.toml")]) == 2
    assert "does not exist" in capsys.readouterr().err
