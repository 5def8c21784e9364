"""One document that goes on in two ways, by two processes."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from engine_adapters.breaker import Breaker
from engine_adapters.transformers import stored_prefix
from examples import transformers_prefix
from tests.support.daemon import DaemonProcess
from tests.support.scale import Scale, at

FILE = Path(transformers_prefix.__file__)
PATIENT = """
import runpy
import sys
from functools import partial

from engine_adapters.transformers import stored_prefix

stored_prefix.Breaker = partial(stored_prefix.Breaker, clock=lambda: 0.0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the file that it is given, with ``_no_call_is_slow``."""
RESTORED = re.compile(r"(\d+) of \d+ tokens restored")
DOCUMENT_TOKENS = 320
"""Of the example's document, in whole chunks."""


@pytest.fixture(autouse=True)
def _no_call_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call sets an arena up: on a busy machine that may take what a breaker admits."""
    monkeypatch.setattr(stored_prefix, "Breaker", partial(Breaker, clock=lambda: 0.0))


def restored(output: str) -> list[int]:
    assert output.count("without a store: True") == 2
    # What the model recalls of the document is right, also where its states were restored.
    assert output.endswith("; turn -> history\n")
    return [int(count) for count in RESTORED.findall(output)]


def test_a_real_daemon_serves_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with DaemonProcess(tmp_path) as daemon:
        monkeypatch.setattr(sys, "argv", [FILE.name, str(daemon.socket_path)])
        assert transformers_prefix.main() == 0
        assert restored(capsys.readouterr().out) == [0, DOCUMENT_TOKENS]
        # Its own files have what it acknowledged, and no byte of it is served without a check.
        daemon.restart()
        assert transformers_prefix.main() == 0
        assert restored(capsys.readouterr().out) == [DOCUMENT_TOKENS, DOCUMENT_TOKENS]
        daemon.kill()
        assert transformers_prefix.main() == 0
        assert restored(capsys.readouterr().out) == [0, 0]


@at(Scale.QUICK)
def test_a_second_process_restores_what_the_first_one_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaemonProcess(tmp_path) as daemon:
        monkeypatch.setattr(sys, "argv", [FILE.name, str(daemon.socket_path)])
        assert transformers_prefix.main() == 0
        second = subprocess.run(
            [sys.executable, "-c", PATIENT, FILE, daemon.socket_path],
            capture_output=True,
            text=True,
            check=True,
            cwd=FILE.parents[1],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    assert restored(second.stdout) == [DOCUMENT_TOKENS, DOCUMENT_TOKENS]
