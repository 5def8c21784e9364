"""``kvstored init``: a file that the other verbs take, and that is never lost."""

import errno
from pathlib import Path

import pytest

from kvstored.cli.errors import EXIT_REFUSED
from kvstored.cli.main import main
from kvstored.config import load_config

PLACES = ("--device", "d0", "--device", "d1", "--index", "index", "--sockets", "sockets")


def test_the_file_is_a_configuration_for_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sockets").mkdir()
    path = tmp_path / "kvstored.toml"
    assert main(["init", "--config", str(path), *PLACES]) == 0
    config = load_config(path)
    assert config.store.devices == (tmp_path / "d0", tmp_path / "d1")
    assert config.store.index == tmp_path / "index"
    assert config.server.socket == tmp_path / "sockets" / "kvstored.sock"
    assert "kvstored format" in capsys.readouterr().out
    assert main(["doctor", "--config", str(path)]) == 0


def test_a_file_that_exists_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kvstored.toml"
    path.write_text("mine")
    assert main(["init", "--config", str(path), *PLACES]) == EXIT_REFUSED
    assert path.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "--config", str(path), *PLACES, "--force"]) == 0
    assert path.read_text() != "mine"


@pytest.mark.parametrize(
    ("file", "device", "words"),
    [
        ("no/kvstored.toml", "d0", "there is no folder"),
        ("kvstored.toml", "no/d0", "there is no folder"),
        ("kvstored.toml", ".", "neither a file nor a block device"),
    ],
)
def test_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, device: str, words: str
) -> None:
    path = tmp_path / file
    assert main(["init", "--config", str(path), "--device", device]) == EXIT_REFUSED
    assert words in capsys.readouterr().err
    assert not path.exists()


def test_a_file_that_cannot_be_written_was_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: for example in a folder that only root may write to."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    (tmp_path / "sockets").mkdir()
    monkeypatch.setattr(Path, "write_text", refuse)
    path = tmp_path / "kvstored.toml"
    assert main(["init", "--config", str(path), *PLACES]) == EXIT_REFUSED
    assert f"cannot write {path}: Permission denied" in capsys.readouterr().err
