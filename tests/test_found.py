import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def found(file: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "tests.found", str(file), "-p", "no:cacheprovider")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_tests_are_counted_and_none_is_run(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text("def test_one(): pass\ndef test_other(): raise SystemExit(9)\n")
    ended = found(file)
    assert (ended.returncode, ended.stdout) == (0, "2 tests\n")


def test_a_file_that_cannot_be_imported_fails_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "test_broken.py"
    file.write_text("import nothing_of_this_name\n")
    ended = found(file)
    assert ended.returncode != 0
    assert "nothing_of_this_name" in ended.stdout
