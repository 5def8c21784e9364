"""Results are listed with the code that they measured, and what changed since."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.benchmark import BenchmarkError
from benchmarks.results import Age, Result, read_results
from benchmarks.results.age import program_of, said_commit
from benchmarks.results.history import Changes
from benchmarks.results.listing import results_document, results_table
from benchmarks.results.result import FOLDER
from kvstored.evidence import NO_CHECKOUT, gather_provenance

MEASURES = "kvstored/io"
"""A folder that ``engines`` describes."""


class Checkout:
    """A clone with one file of code that ``engines`` describes, and a folder of results."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "docs" / "results"
        self.folder.mkdir(parents=True)
        (root / MEASURES).mkdir(parents=True)
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        words = ["git", *author, *arguments]
        answer = subprocess.run(words, cwd=self.root, check=True, capture_output=True, text=True)
        return answer.stdout.strip()

    def commit(self, name: str, text: str) -> str:
        (self.root / name).write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", name)
        return self.git("rev-parse", "--short=12", "HEAD")

    def write(self, name: str, **values: Any) -> None:
        document = {"benchmark": "engines", "command": "python -m benchmarks engines", **values}
        (self.folder / name).write_text(json.dumps(document))

    def only(self) -> Result:
        (result,) = read_results(self.folder, self.root)
        return result


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    return Checkout(tmp_path)


def test_changes_count_from_the_commit_that_was_measured(checkout: Checkout) -> None:
    measured = checkout.commit(f"{MEASURES}/engine.py", "1")
    checkout.write("a.json", commit=measured, is_clean=True, date="2026-01-02T03:04:05+00:00")
    checkout.commit("unrelated.py", "1")
    result = checkout.only()
    assert str(result.age) == f"commit {measured}"
    assert (result.age.is_clean, result.age.date) == (True, "2026-01-02T03:04:05+00:00")
    assert (result.since, result.changes) == (measured, Changes(commit_count=0, file_count=0))
    checkout.commit(f"{MEASURES}/engine.py", "2")
    (checkout.root / MEASURES / "engine.py").write_text("3")
    assert checkout.only().changes == Changes(commit_count=1, file_count=1)


def test_a_result_without_a_commit_is_as_old_as_its_file(checkout: Checkout) -> None:
    checkout.commit(f"{MEASURES}/engine.py", "1")
    checkout.write("a.json")
    brought = checkout.commit("unrelated.py", "1")
    checkout.commit(f"{MEASURES}/engine.py", "2")
    result = checkout.only()
    assert str(result.age) == f"committed in {brought[:7]}"
    assert (result.age.measured, result.age.is_clean) == (None, None)
    assert (result.since, result.changes) == (brought[:7], Changes(commit_count=1, file_count=1))


def test_a_commit_that_this_clone_has_not_got_is_told_with_its_files(checkout: Checkout) -> None:
    checkout.write("a.json", commit="0123456789ab-dirty")
    brought = checkout.commit("unrelated.py", "1")
    result = checkout.only()
    assert str(result.age) == "commit 0123456789ab, not clean"
    assert result.since == brought[:7]
    (commit,) = results_table([result]).columns[3].cells
    assert commit == f"0123456789ab from {brought[:7]}"


def test_without_git_nothing_is_known_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "a.json").write_text('{"benchmark": "engines", "command": "python"}')
    (result,) = read_results(tmp_path, tmp_path)
    assert str(result.age) == "commit unknown"
    assert (result.age.date, result.since, result.changes) == (None, None, None)
    assert results_table([result]).row_count == 1


def test_a_file_belongs_to_the_json_with_the_longest_name_that_its_own_begins_with(
    checkout: Checkout,
) -> None:
    for name in ("cake.txt", "cake_plot.png", "cake_simulate.txt"):
        (checkout.folder / name).touch()
    checkout.write("cake.json")
    checkout.write("cake_simulate.json", parts=["simulate"])
    found = {each.file: each.beside for each in read_results(checkout.folder, checkout.root)}
    assert found == {
        "cake.json": ("cake.txt", "cake_plot.png"),
        "cake_simulate.json": ("cake_simulate.txt",),
    }
    (checkout.folder / "other.txt").touch()
    with pytest.raises(BenchmarkError, match=r"other\.txt belongs to no JSON"):
        read_results(checkout.folder, checkout.root)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("", "is no JSON"), ('{"benchmark": "speed", "command": ""}', "of speed, of which")],
)
def test_what_is_no_result_is_refused(checkout: Checkout, text: str, sentence: str) -> None:
    (checkout.folder / "a.json").write_text(text)
    with pytest.raises(BenchmarkError, match=sentence):
        checkout.only()


def test_what_a_file_says_of_its_commit() -> None:
    assert said_commit({}) == (None, None)
    assert said_commit({"commit": NO_CHECKOUT, "is_clean": None}) == (None, None)
    assert said_commit({"commit": "0123456789ab", "is_clean": False}) == ("0123456789ab", False)
    assert said_commit({"commit": "0123456789ab-dirty"}) == ("0123456789ab", False)
    assert said_commit({"commit": "0123456789ab"}) == ("0123456789ab", True)


def test_labs_and_examples_are_known_by_their_module() -> None:
    assert program_of({"command": "python -m tests.faults.kill --count 5"}) == "tests.faults.kill"
    assert program_of({"command": ".ci/run"}) == ".ci/run"
    assert program_of({"benchmark": "cake", "command": ""}) == "cake"


def test_all_files_of_this_repository_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "list.json"
    assert command.main(["results", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    listed = [name for each in document["results"] for name in (each["file"], *each["beside"])]
    assert sorted(listed) == sorted(path.name for path in FOLDER.iterdir())
    assert {"flips.json", "kills.json", "power.json", "cake_adaptive.png"} <= set(listed)
    assert document["command"].startswith("python -m benchmarks results")
    output = capsys.readouterr().out
    assert all(len(line) <= command.TEXT_WIDTH for line in output.splitlines())
    assert all(Path(each["file"]).stem in output for each in document["results"])
    with pytest.raises(SystemExit):
        command.main(["results", "--part", "all"])


def test_a_row_shows_kinds_of_files_and_an_unclean_tree() -> None:
    age = Age(measured="0123456789ab", is_clean=False, committed=None, date="2026-01-02T03:04")
    result = Result(
        file="cake.json",
        beside=("cake.txt", "cake_a.png", "cake_b.png"),
        program="cake",
        parts=("table7",),
        command="python",
        age=age,
        code=("kvstored",),
        since=None,
        changes=None,
    )
    table = results_table([result, replace(result, age=replace(age, is_clean=None))])
    cells = [list(column.cells) for column in table.columns]
    assert cells[1][0] == "json txt 2 png"
    assert [row[0] for row in cells[2:]] == [
        "cake table7",
        "0123456789ab",
        "no",
        "2026-01-02",
        "not known",
        "not known",
    ]
    assert cells[4][1] == "?"
    document = results_document([result], gather_provenance("python"))
    assert document["results"][0]["age"]["is_clean"] is False
