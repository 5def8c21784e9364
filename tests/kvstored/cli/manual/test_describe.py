"""The command line as it is, as completions and the manual have it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvstored import package_version
from kvstored.cli.main import VERBS, main
from kvstored.cli.manual.completion import SHELLS
from kvstored.cli.manual.describe import described
from kvstored.cli.manual.page import manual_page

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("shell", list(SHELLS))
def test_every_verb_and_option_is_in_the_completion(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for verb in described().verbs:
        assert verb.name in script
        for option in verb.flagged:
            assert all(flag.lstrip("-") in script for flag in option.flags)
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine to look at the script's syntax")
    subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_the_page_is_that_of_the_command_line() -> None:
    page = (ROOT / "docs" / "kvstored.1").read_text()
    assert page == manual_page(described(), version=package_version()), (
        "write it again: python -m kvstored.cli.manual > docs/kvstored.1"
    )
    assert all(f".SH {name.upper()}\n" in page for name in VERBS)
