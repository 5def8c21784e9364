"""The example of docs/vllm.md: what a new engine restores, and what the trained model answers."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.daemon import DaemonProcess

PROJECT = Path(__file__).parents[3]
EXAMPLE = PROJECT / "examples" / "vllm_multi_turn.py"
TURN = re.compile(r"^turn (\d): (\d+) prompt tokens, (\d+) restored$", re.MULTILINE)
EXAMPLE_S = 240.0
"""Two engines start in it."""


def test_a_new_engine_restores_the_conversation_and_recalls_its_pair(
    shared_daemon: DaemonProcess,
) -> None:
    ended = subprocess.run(
        [sys.executable, EXAMPLE, shared_daemon.socket_path],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    turns = re.findall(
        r"^turn (\d): (\d+) prompt tokens, (\d+) restored$", ended.stdout, re.MULTILINE
    )
    assert [number for number, _, _ in turns] == ["1", "2", "3"]
    # Of the third prompt a second engine has seen nothing.
    prompt_tokens, restored_tokens = map(int, turns[2][1:])
    assert prompt_tokens - 64 < restored_tokens < prompt_tokens
    assert ended.stdout.rstrip().endswith("; turn -> history")
