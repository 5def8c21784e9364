"""Which modules are reached by imports from somewhere.

A name that a package only passes on is followed to the module that defines it: a package does
not reach everything that its ``__init__`` lists.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.sources import is_package, tree_of


def reached(starts: Iterable[str], known: dict[str, Path]) -> set[str]:
    """The modules among ``known`` (by name) that one of ``starts`` leads to, and these."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        module = waiting.pop()
        if module in found or module not in known:
            continue
        found.add(module)
        follows = not is_package(known[module]) or module in starts
        waiting += imports_of(module, known) if follows else ()
        waiting += packages_of(module)
    return found


def imports_of(module: str, known: dict[str, Path]) -> Iterator[str]:
    """The modules that define what a module imports, wherever in it."""
    for node in ast.walk(tree_of(known[module])):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from defining(node.module, alias.name, known)


def defining(package: str, name: str, known: dict[str, Path]) -> Iterator[str]:
    """``package``, and the module from which it has ``name``, if it only passes that on."""
    yield package
    if f"{package}.{name}" in known:
        yield f"{package}.{name}"
    elif package in known and is_package(known[package]):
        for node in ast.walk(tree_of(known[package])):
            if isinstance(node, ast.ImportFrom) and node.module and name in names_of(node):
                yield from defining(node.module, name, known)


def names_of(node: ast.ImportFrom) -> set[str]:
    """The names that an import gives to what it imports."""
    return {alias.asname or alias.name for alias in node.names}


def packages_of(module: str) -> Iterator[str]:
    """Every package that a module lies in."""
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts)))
