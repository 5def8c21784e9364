"""The repository's own rules, as far as a test can see them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
MEDIAN_LINES_MAX = 160
FOLDERS = ("kvstored", "client", "protos", "engine_adapters", "tests", "benchmarks", "examples")

WORDS_TO_AVOID = {
    r"\bblob\b": "chunk",
    r"\bpage_size\b": "block (the engine's) or chunk (ours)",
    r"\bttl_sec\b": "units are spelled _s or _ms",
    r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b": "finish it, or open an issue",
}


def python_files() -> list[Path]:
    """Our own Python files, without generated ones."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if "kvstored_protos" not in path.parts]


def product_files() -> list[Path]:
    return [path for path in python_files() if "tests" not in path.relative_to(ROOT).parts]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_can_be_read_in_one_sitting() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in product_files()}
    assert [str(path) for path, lines in lengths.items() if lines > FILE_LINES_MAX] == []
    assert sorted(lengths.values())[len(lengths) // 2] <= MEDIAN_LINES_MAX


def test_functions_do_one_thing() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in product_files()
        for node in functions(path)
        if node.end_lineno and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert too_long == []


@pytest.mark.parametrize("pattern", WORDS_TO_AVOID)
def test_vocabulary(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in product_files()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == [], WORDS_TO_AVOID[pattern]


@pytest.mark.parametrize("module", ["pickle", "marshal", "shelve"])
def test_nothing_is_deserialised_into_code(module: str) -> None:
    for path in product_files():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert module not in names, path


def test_no_path_of_one_machine_is_in_the_repository() -> None:
    private = [re.compile(rf"/{name}/") for name in ("work", "root", "farm")]
    for path in python_files() + sorted(ROOT.glob("docs/*.md")) + [ROOT / "README.md"]:
        text = path.read_text()
        assert not any(pattern.search(text) for pattern in private), path


def test_tests_mirror_the_packages() -> None:
    """Every test module of a package lies in the folder of the same name."""
    for path in sorted((ROOT / "tests" / "kvstored").rglob("test_*.py")):
        folder = path.parent.relative_to(ROOT / "tests")
        assert (ROOT / folder).is_dir(), path
