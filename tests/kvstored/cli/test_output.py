"""What commands print."""

import json

import pytest

from kvstored.cli.output import Report, heading, human, human_bytes, progress_bar, write_report

REPORT = Report(
    title="three devices",
    columns=("path", "used_bytes", "failed"),
    rows=[("/dev/a", 2048, False), ("/dev/[b]", 5, True)],
    values={"epoch": 3, "rate": 1.234},
)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    write_report(REPORT, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "epoch": 3,
        "rate": 1.234,
        "rows": [
            {"path": "/dev/a", "used_bytes": 2048, "failed": False},
            {"path": "/dev/[b]", "used_bytes": 5, "failed": True},
        ],
    }


def test_json_without_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    write_report(Report(title="t", values={"a": 1}), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    write_report(REPORT, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "three devices"
    assert lines[1:3] == ["  epoch: 3", "  rate: 1.23"]
    assert lines[3].split() == ["path", "used", "failed"]
    assert lines[4].split() == ["/dev/a", "2.0", "KiB", "no"]
    assert lines[5].split() == ["/dev/[b]", "5", "B", "yes"]


@pytest.mark.parametrize(
    ("byte_count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 19, "1.5 MiB"),
        (1 << 30, "1.0 GiB"),
        (5000 << 40, "5000.0 TiB"),
    ],
)
def test_bytes(byte_count: int, text: str) -> None:
    assert human_bytes(byte_count) == text


def test_only_bytes_get_a_unit() -> None:
    assert human("chunk_count", 4096) == "4096"
    assert human("bytes", 4096) == "4.0 KiB"
    assert heading("flush_requests") == "flush requests"


def test_progress_is_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("work") as progress:
        progress(1, 2)
        progress(2, 2)
    assert capsys.readouterr() == ("", "")
