"""The repository's own rules, as far as a test can see them; those with lists are in ``tidy``."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import lab_table, labs
from tests.tidy.sources import ROOT, functions, product_files, python_files, text_of, tree_of


@pytest.mark.parametrize("module", ["pickle", "marshal", "shelve"])
def test_nothing_is_deserialised_into_code(module: str) -> None:
    for path in product_files():
        assert module not in imported_modules(path), path


def test_no_path_of_one_machine_is_in_the_repository() -> None:
    private = [re.compile(rf"/{name}/") for name in ("work", "root", "farm")]
    for path in python_files() + sorted(ROOT.glob("docs/*.md")) + [ROOT / "README.md"]:
        text = text_of(path)
        assert not any(pattern.search(text) for pattern in private), path


@cache
def imported_modules(path: Path) -> set[str]:
    """Every module that a file names in an import, with those that it imports from."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def importers(folder: str, package: str) -> list[str]:
    """Files below a folder of the repository that import a package."""
    return [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / folder).rglob("*.py"))
        if any(module.split(".")[0] == package for module in imported_modules(path))
    ]


@pytest.mark.parametrize(
    "folder", ["kvstored", "client", "protos", "engine_adapters", "benchmarks"]
)
def test_nothing_but_tests_imports_tests(folder: str) -> None:
    assert importers(folder, "tests") == []


def test_tests_of_the_product_import_no_benchmark() -> None:
    """What both use lies in the ``testing`` packages of what they test."""
    own = importers("tests/benchmarks", "benchmarks")
    assert own
    assert [path for path in importers("tests", "benchmarks") if path not in own] == []


def test_tests_mirror_the_packages() -> None:
    """Every test module of a package lies in the folder of the same name."""
    for path in sorted((ROOT / "tests" / "kvstored").rglob("test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        assert (ROOT / folder).is_dir(), path


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def test_sizes_of_labs_are_marked_in_one_place() -> None:
    marker = re.compile(r"pytest\.mark\.(smoke|quick|long)\b")
    assert [path for path in files_of_tests() if marker.search(path.read_text())] == []


@pytest.mark.parametrize("name", labs.labs())
def test_every_lab_is_used(name: str) -> None:
    lab = labs.labs()[name]
    assert f"labs.{name}." in (ROOT / "tests" / lab.file).read_text()
    is_long_only = (lab.smoke, lab.quick) == (None, None)
    assert is_long_only == (name in labs.LONG_ONLY), "CI would run none of it"


def test_the_table_of_labs_is_that_of_the_labs() -> None:
    """``python -m tests.support.lab_table docs/development.md`` writes it, with the times."""
    text = (ROOT / "docs" / "development.md").read_text()
    assert "<!-- labs -->" in text
    assert lab_table.filled(text) == text


def promised_tests() -> dict[str, Path]:
    """Every test file that the table of promises names, as it names it in which row."""
    text = (ROOT / "docs" / "design.md").read_text()
    section = text.split("\n## Promises\n")[1].split("\n## ")[0]
    found: dict[str, Path] = {}
    for row in section.splitlines():
        folder = ROOT / "tests" / "faults"
        for name in re.findall(r"`([\w/]*test_\w+\.py)`", row if row.startswith("| ") else ""):
            path = promised_path(name, folder)
            found[f"{row.split('|')[1].strip()}: {name}"] = path
            folder = path.parent
    return found


def promised_path(name: str, folder: Path) -> Path:
    """Names lie below ``tests/faults``; one without a folder may lie in that of the last one."""
    tests = ROOT / "tests"
    if name.startswith("tests/"):
        return ROOT / name
    if name.startswith("store/"):
        return tests / "kvstored" / name
    beside = folder / name
    return beside if beside.exists() else tests / "faults" / name


def is_in_make_test(decorator: ast.expr) -> bool:
    """Whether a test that is decorated so runs in ``make test``."""
    text = ast.unparse(decorator)
    lab = re.match(r"labs\.([A-Z_]+)\.", text)
    if lab:
        return labs.labs()[lab[1]].smoke is not None
    return not re.search(r"\bat\(\w+\.(QUICK|LONG)\)", text)


def runs_in_make_test(path: Path) -> bool:
    return any(
        node.name.startswith("test_") and all(map(is_in_make_test, node.decorator_list))
        for node in functions(path)
    )


@pytest.mark.parametrize("promised", promised_tests())
def test_make_test_touches_every_promise(promised: str) -> None:
    """A state machine or a class of tests has no size of its own."""
    path = promised_tests()[promised]
    assert path.exists()
    assert runs_in_make_test(path), f"{path} has no test at the size of make test"
