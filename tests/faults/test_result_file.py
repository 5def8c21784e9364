"""A result says by which command and from which commit it was made."""

import json
import os
import subprocess
import sys
from pathlib import Path

from kvstored.evidence import NO_CHECKOUT
from kvstored.evidence.checkout import ROOT
from tests.faults.result_file import write_result


def test_a_result_names_its_command_and_its_commit(tmp_path: Path) -> None:
    """Fails where ``started_as`` leaves out the module or git looks at another folder."""
    arguments = ["-m", "tests.faults.media", "--count", "20", "--seed", "5", "--json", "a file"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    result = json.loads((tmp_path / "a file").read_text())
    assert result["command"] == f"python {' '.join(arguments[:-1])} 'a file'"
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result["commit"] == (head.stdout[:12] or NO_CHECKOUT)
    assert result["libraries"]["lmdb"]
    assert result["flips"] >= 20


def test_a_run_without_a_file_writes_none() -> None:
    write_result(None, {"flips": 1})


def test_a_folder_that_was_missing_lost_the_result_of_a_long_run(tmp_path: Path) -> None:
    """*Bug:* eight minutes of tests ended with a traceback."""
    path = tmp_path / "new" / "folder" / "result.json"
    write_result(path, {"flips": 1})
    assert json.loads(path.read_text())["flips"] == 1
