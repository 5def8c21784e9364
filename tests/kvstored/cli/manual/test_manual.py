"""Completions and the manual, from the command line as it is."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kvstored import package_version
from kvstored.cli.main import VERBS, main
from kvstored.cli.manual.command_line import CommandLine, Option, Verb
from kvstored.cli.manual.completion import SHELLS, bash
from kvstored.cli.manual.describe import described
from kvstored.cli.manual.page import manual_page

ROOT = Path(__file__).parents[4]
SAMPLE = CommandLine(
    name="tool",
    text="A tool.",
    verbs=(
        Verb(
            name="cut",
            text="cut what's there",
            options=(
                Option(flags=("-h", "--help"), value="", text="show help"),
                Option(flags=("--level",), value="LEVEL", text="how [deep]: a", choices=("a", "b")),
                Option(flags=("--from",), value="FILE", text="what"),
                Option(flags=("--size",), value="SIZE", text="how \\ much"),
                Option(flags=(), value="file", text=".where"),
            ),
        ),
        Verb(
            name="pick",
            text="pick one",
            options=(Option(flags=(), value="which", text="one", choices=("x", "y")),),
        ),
    ),
)


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _{words[0]}; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    result = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    return result.stdout.split()


def test_bash_completes_verbs_options_and_values() -> None:
    script = bash(SAMPLE)
    assert completed(script, "tool", "") == ["cut", "pick", "--version", "--help"]
    assert completed(script, "tool", "c") == ["cut"]
    assert completed(script, "tool", "cut", "--l") == ["--level"]
    assert completed(script, "tool", "cut", "--level", "") == ["a", "b"]
    assert completed(script, "tool", "cut", "--from", "et") == ["etc"]
    assert completed(script, "tool", "cut", "--size", "") == []
    assert completed(script, "tool", "cut", "et") == ["etc"]
    assert completed(script, "tool", "pick", "") == ["x", "y"]


@pytest.mark.parametrize("shell", list(SHELLS))
def test_every_verb_and_option_is_in_the_completion(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for verb in described().verbs:
        assert verb.name in script
        for option in verb.flagged:
            assert all(flag.removeprefix("--") in script for flag in option.flags)
    assert "what'\\''s" in SHELLS[shell](SAMPLE) or shell == "bash"
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


def test_no_line_of_text_is_a_request() -> None:
    page = manual_page(SAMPLE, version="1")
    assert "\n\\&.where\n" in page
    assert "how \\e much" in page
    assert "\\fI{a,b}\\fR" in page
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".B", ".I", ".TP", ".PP"}
