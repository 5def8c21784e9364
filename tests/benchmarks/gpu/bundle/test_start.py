"""What a bundle starts with: sentences where it cannot run."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.gpu.bundle import start

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.mark.parametrize(
    ("packed_for", "flags", "sentence"),
    [
        ("3.5", (), "the bundle is for 3.5"),
        # Without the folder of packages there is no PyTorch.
        (OWN, ("-S",), "has no PyTorch"),
    ],
)
def test_a_python_that_cannot_run_it_is_told(
    tmp_path: Path, packed_for: str, flags: tuple[str, ...], sentence: str
) -> None:
    program = tmp_path / "run"
    program.write_text(Path(start.__file__).read_text())
    (tmp_path / start.PYTHON_FILE).write_text(f"{packed_for}\n")
    done = subprocess.run(
        [sys.executable, "-I", *flags, program], capture_output=True, text=True, check=False
    )
    assert done.returncode == start.FAILED
    assert sentence in done.stderr
    assert not (tmp_path / "unpacked").exists()


def test_a_new_archive_ran_the_code_of_the_one_that_was_unpacked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* a folder that was there was never looked at, so an older commit was measured."""
    monkeypatch.setattr(start, "HERE", tmp_path)
    monkeypatch.setattr(start, "UNPACKED", tmp_path / "unpacked")
    for text in ("old", "new"):
        (tmp_path / "code.py").write_text(text)
        with tarfile.open(tmp_path / start.ARCHIVE, "w:xz") as archive:
            archive.add(tmp_path / "code.py", "project/code.py")
        start.unpack()
        assert (tmp_path / "unpacked/project/code.py").read_text() == text
    before = (tmp_path / "unpacked").stat().st_ino
    start.unpack()
    assert (tmp_path / "unpacked").stat().st_ino == before


def test_the_code_of_a_clone_was_measured_where_the_bundle_was_started_in_one(
    tmp_path: Path,
) -> None:
    """*Bug:* Python looked into the current folder first."""
    for folder, text in (("bundle/project/benchmarks", "packed"), ("clone/benchmarks", "clone")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
        (tmp_path / folder / "__main__.py").write_text(f"print({text!r})")
    bundle = tmp_path / "bundle"
    (bundle / "run").write_text(Path(start.__file__).read_text())
    (bundle / start.PYTHON_FILE).write_text(f"{OWN}\n")
    with tarfile.open(bundle / start.ARCHIVE, "w:xz") as archive:
        archive.add(bundle / "project", "project")
    done = subprocess.run(
        [sys.executable, bundle / "run"],
        cwd=tmp_path / "clone",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["packed"], done.stderr
