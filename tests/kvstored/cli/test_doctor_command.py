"""``kvstored doctor`` on this machine: what it prints, and its status."""

import json
from pathlib import Path

import pytest

from kvstored.cli.doctor_command import needs_of, report_of
from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.main import main
from kvstored.config import load_config
from kvstored.doctor.finding import good, note, wrong
from kvstored.doctor.needs import IoUringNeed
from tests.support.daemon import DaemonProcess


def test_a_store_that_runs_has_nothing_wrong(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--config", str(daemon.config_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["wrong_count"] == 0
    subjects = {row["subject"] for row in document["rows"]}
    assert {"kernel", "io_uring", "memory", *map(str, daemon.devices)} <= subjects


def test_a_device_that_is_too_small_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = DaemonProcess(tmp_path)
    daemon.format()
    with daemon.devices[0].open("r+b") as file:
        file.truncate(4096)
    assert main(["doctor", "--config", str(daemon.config_path)]) == EXIT_FAILED
    daemon.close()
    printed = capsys.readouterr().out
    assert "1 wrong" in printed
    assert "less than store.device_bytes" in printed


@pytest.mark.parametrize(
    ("kind", "need"),
    [
        ("auto", IoUringNeed.WELCOME),
        ("io_uring", IoUringNeed.REQUIRED),
        ("threads", IoUringNeed.NONE),
    ],
)
def test_what_a_configuration_needs(tmp_path: Path, kind: str, need: IoUringNeed) -> None:
    daemon = DaemonProcess(tmp_path, overrides={"io": {"engine": kind}})
    needs = needs_of(load_config(daemon.config_path))
    assert needs.io_uring is need
    assert (needs.dram_bytes, needs.device_bytes) == (64 << 20, 128 << 20)
    daemon.close()


def test_what_is_wrong_comes_first() -> None:
    report = report_of([good("a", "x"), note("b", "y", "do"), wrong("c", "z", "do")])
    assert [row[1] for row in report.rows] == ["c", "b", "a"]
    assert report.values == {"wrong_count": 1, "note_count": 1}
    assert "1 wrong, 1 to note" in report.title
    assert "nothing is wrong" in report_of([good("a", "x")]).title
