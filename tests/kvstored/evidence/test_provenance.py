"""What a result says of its origin, inside and outside a checkout."""

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kvstored.evidence import NO_CHECKOUT, gather_provenance
from kvstored.evidence.gather import installed_versions

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(root: Path, *arguments: str) -> str:
    command = ["git", *AUTHOR, *arguments]
    answer = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return answer.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "code.py").write_text("1\n")
    (tmp_path / "docs" / "results").mkdir(parents=True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


@needs_git
def test_a_checkout_gives_its_commit_and_whether_it_is_clean(checkout: Path) -> None:
    found = gather_provenance("python -m it", root=checkout)
    assert found.commit == git(checkout, "rev-parse", "HEAD")[:12]
    assert found.is_clean is True
    (checkout / "docs" / "results" / "new.json").write_text("{}")
    assert gather_provenance("", root=checkout).is_clean is True
    (checkout / "code.py").write_text("2\n")
    assert gather_provenance("", root=checkout).is_clean is False


@needs_git
def test_code_below_the_checkout_of_another_project_has_no_commit(checkout: Path) -> None:
    (checkout / "copy").mkdir()
    found = gather_provenance("", root=checkout / "copy")
    assert (found.commit, found.is_clean) == (NO_CHECKOUT, None)


def test_outside_a_checkout_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = gather_provenance("python -m it", root=tmp_path)
    assert (found.commit, found.is_clean) == (NO_CHECKOUT, None)
    monkeypatch.setenv("PATH", "")
    assert gather_provenance("", root=tmp_path).commit == NO_CHECKOUT


def test_machine_and_libraries_are_named(tmp_path: Path) -> None:
    (tmp_path / "nr_hugepages").write_text("3\n")
    before = datetime.now(UTC).replace(microsecond=0)
    found = gather_provenance("python -m it", kernel_settings=tmp_path)
    document = found.to_document()
    assert before <= datetime.fromisoformat(document["date"]) <= datetime.now(UTC)
    assert document["date"].endswith("+00:00")
    assert document["command"] == "python -m it"
    assert document["kernel"].startswith("Linux ")
    assert document["core_count"] == len(os.sched_getaffinity(0))
    assert document["memory_bytes"] > 1 << 28
    assert (document["huge_page_count"], document["huge_page_overcommit_count"]) == (3, 0)
    assert document["libraries"] == installed_versions()
    assert {"grpcio", "lmdb", "numpy"} <= document["libraries"].keys()
