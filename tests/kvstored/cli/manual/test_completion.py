"""Completions of a sample, in a real shell."""

import subprocess

import pytest

from kvstored.cli.manual.completion import SHELLS, bash
from tests.kvstored.cli.manual.sample import SAMPLE


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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_texts_are_words_of_the_shell(shell: str) -> None:
    script = SHELLS[shell](SAMPLE)
    assert "what'\\''s" in script
    assert "a b" in script
