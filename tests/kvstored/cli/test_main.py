"""The command itself: what it says of its verbs, and what a call imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvstored import package_version
from kvstored.cli.main import main

VERBS = ("format", "run", "ping", "stats", "ls", "inspect", "check", "bench")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"usage: kvstored {verb}" in capsys.readouterr().out


def test_the_help_of_the_command_names_all_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("    ")} >= set(VERBS)


def test_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kvstored {package_version()}\n"


@pytest.mark.parametrize("arguments", [[], ["serve"], ["--limit", "3"]])
def test_without_a_verb_that_it_knows_it_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "VERB" in capsys.readouterr().err


def test_format_says_where_relative_paths_point_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: it said "open failed: No such file or directory" of a path that nobody had written."""
    config = tmp_path / "kvstored.toml"
    config.write_text(
        '[store]\ndevices = ["var/device0"]\ndevice_bytes = "256MiB"\nindex = "var/index"\n'
    )
    assert main(["format", "--config", str(config)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    folder = tmp_path / "var"
    assert f"{folder}/device0 cannot be made: there is no folder {folder}" in said
    assert f"relative to the folder of the configuration file, {tmp_path}" in said
    folder.mkdir()
    assert main(["format", "--config", str(config)]) == 0


def test_the_daemon_is_imported_only_behind_its_restart() -> None:
    """Bug: ``run`` imported everything, restarted itself tuned, and imported it all again.

    Fails when ``main`` imports a verb at its top, or imports ``run`` before the restart.
    """
    code = (
        "import sys\n"
        "from kvstored.cli import main\n"
        "main.restart_tuned = lambda: sys.exit(\n"
        "    str({name.split('.')[0] for name in sys.modules} & {'grpc', 'numpy', 'lmdb'}))\n"
        "sys.argv = ['kvstored', 'run']\n"
        "main.main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stderr == "set()\n"
