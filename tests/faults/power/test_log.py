"""What strace says of calls, and a call of which it says nothing."""

from pathlib import Path

import pytest

from tests.faults.power import lab
from tests.faults.power.log import LogError, UnknownResultError, Written, read_events


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def log(folder: Path, *lines: str) -> Path:
    path = folder / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_of(data: str, end: str) -> list[str]:
    """A file is opened, and something written to it."""
    file = f"3<{hexed('/disk/a')}>"
    return [
        f'7 openat(AT_FDCWD<{hexed("/")}>, "{hexed("/disk/a")}", O_RDWR) = {file}',
        f'7 write({file}, "{hexed(data)}", {len(data)} <unfinished ...>',
        f"7 <... write resumed>) {end}",
    ]


def test_a_call_ends_where_its_result_stands(tmp_path: Path) -> None:
    (event,) = read_events(log(tmp_path, *write_of("ab", "= 2")), Path("/disk"))
    assert isinstance(event, Written)
    assert (event.path, event.data, event.begin, event.end) == ("a", b"ab", 1, 2)


def test_a_process_that_ends_within_a_call_says_not_what_it_did(tmp_path: Path) -> None:
    """Bug: a workload that ended while a thread wrote was taken for an unknown line."""
    with pytest.raises(UnknownResultError, match="line 2"):
        read_events(log(tmp_path, *write_of("ab", "= ?")), Path("/disk"))
    with pytest.raises(LogError, match="no result"):
        read_events(log(tmp_path, *write_of("ab", "")), Path("/disk"))


def test_such_a_recording_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[int] = []
    folder = tmp_path / "recording"

    def record(there: Path, **_: object) -> None:
        assert list(there.iterdir()) == []
        (there / "log").touch()
        records.append(len(records))

    def check_replay(_: Path) -> None:
        if len(records) <= cut_off:
            raise UnknownResultError

    folder.mkdir()
    monkeypatch.setattr(lab, "record", record)
    monkeypatch.setattr(lab, "check_replay", check_replay)
    monkeypatch.setattr(lab, "examine_recording", lambda *_, **__: "report")
    cut_off = 2
    report: object = lab.run_lab(folder, seed=1, count=1)
    assert (report, len(records)) == ("report", 3)
    records.clear()
    cut_off = lab.RECORDINGS_MAX
    (folder / "log").unlink()
    with pytest.raises(UnknownResultError):
        lab.run_lab(folder, seed=1, count=1)
    assert len(records) == lab.RECORDINGS_MAX
