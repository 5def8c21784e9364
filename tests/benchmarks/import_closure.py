"""Which files of the product a program leads to, seen in their texts: nothing is imported."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.reach import imports_of, packages_of
from tests.tidy.sources import is_package, module_of, modules, python_files, tree_of

BY_NAME_ONLY = {"benchmarks.registry"}
"""Modules that name others without leading to them: that of one is asked for."""


@cache
def product_of_repository() -> dict[str, Path]:
    """Every module, and those of tests as well, because some of their programs write results."""
    return {module_of(path): path for path in python_files()}


def led_to(start: str) -> set[Path]:
    """The files of the product whose code may run when ``start`` does.

    They are imported by it or by each other, or named in a string: as another process starts
    them, ``python -m NAME`` or ``NAME:FUNCTION``. Of a package that is only on the way to a
    module the imports do not count, as in ``tests/tidy/reach.py``.
    """
    known = product_of_repository()
    begins = {start, f"{start}.__main__"} & known.keys()
    found: set[str] = set()
    waiting = set(begins)
    while waiting:
        module = waiting.pop()
        found.add(module)
        named = named_in(module) & known.keys() - begins
        begins |= named
        waiting |= named | (set(packages_of(module)) & known.keys() - found)
        if module in begins or not is_package(known[module]):
            waiting |= imported_by(module) & known.keys() - found
    return {known[module] for module in found if module in modules()}


@cache
def imported_by(module: str) -> set[str]:
    """The modules that define what a module imports."""
    return set(imports_of(module, product_of_repository()))


@cache
def named_in(module: str) -> set[str]:
    """What may be names of modules in the strings of one; a word without a dot is none."""
    if module in BY_NAME_ONLY:
        return set()
    return set(dotted_strings(product_of_repository()[module]))


def dotted_strings(path: Path) -> Iterator[str]:
    """The strings of a file that have a dot, up to a colon."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if "." in name:
                yield name
