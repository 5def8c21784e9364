"""The repository's own files, as the rules look at them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT_FOLDERS = ("kvstored", "client", "protos", "engine_adapters", "benchmarks", "examples")
FOLDERS = (*PRODUCT_FOLDERS, "tests")
IMPORT_ROOTS = {"client": "client", "protos": "protos"}
"""Folders that are no part of the names of the packages in them."""


def python_files() -> list[Path]:
    """Our own Python files, without generated ones."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if "kvstored_protos" not in path.parts]


def product_files() -> list[Path]:
    """Those that are no tests."""
    return [path for path in python_files() if "tests" not in path.relative_to(ROOT).parts]


@cache
def text_of(path: Path) -> str:
    """What a file says."""
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text_of(path))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method of a file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def module_of(path: Path) -> str:
    """The name by which a file is imported; that of the package for an ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in IMPORT_ROOTS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the product, by name."""
    return {module_of(path): path for path in product_files()}


def docstring_of(path: Path) -> str:
    """What a module says of itself."""
    return ast.get_docstring(tree_of(path)) or ""


def is_package(path: Path) -> bool:
    """Whether a file is the ``__init__`` of a package."""
    return path.name == "__init__.py"
