"""The command, with a daemon: from its start to SIGTERM."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from engine_adapters.server.__main__ import main
from tests.support.daemon import DaemonProcess
from tests.support.scale import Scale, at

COMMAND = [sys.executable, "-m", "engine_adapters.server"]
WAIT_S = 60


@at(Scale.QUICK)
def test_a_server_from_its_start_to_its_end(
    shared_daemon: DaemonProcess, model_directory: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('"sk-1" = "a server"\n')
    arguments = ["--model", model_directory, "--socket", shared_daemon.socket_path, "--port", "0"]
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments), "--keys", str(keys), "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving tiny at http://127.0.0.1:"), process.stderr
        asked = {"model": "tiny", "text": "the store keeps states " * 5}
        request = Request(
            f"{line.split()[-1]}/v1/context_caches",
            data=json.dumps(asked).encode(),
            headers={"Authorization": "Bearer sk-1"},
        )
        with urlopen(request, timeout=WAIT_S) as response:
            assert json.load(response)["object"] == "context_cache"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


def test_what_cannot_be_served_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["server", "--model", str(tmp_path)])
    assert main() == 2
    text = capsys.readouterr().err
    assert text.startswith("server: ")
    assert len(text.splitlines()) == 1
