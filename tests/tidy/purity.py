"""Where it is said that a module is pure: in its docstring, an import contract, coverage's list."""

import fnmatch
import re
import tomllib
from functools import cache
from typing import Any

from tests.tidy.sources import ROOT, docstring_of, is_package, modules

CONTRACTS = "Pure parts"
"""How the names of the import contracts of pure parts begin."""
SAID = re.compile(r"(?:^|(?<=[.:] )|(?<=\n))Pure\b(?!,? but for\b)")
"""A sentence that begins with the word."""


def settings() -> dict[str, Any]:
    """The tools' settings."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tools: dict[str, Any] = tomllib.load(file)["tool"]
    return tools


@cache
def said() -> set[str]:
    """Modules whose docstring says so, or that of a package that they lie in."""
    known = modules()
    named = {name for name, path in known.items() if SAID.search(docstring_of(path))}
    packages = {name for name in named if is_package(known[name])}
    return {name for name in known if name in named or within(name, packages)}


@cache
def contracted() -> set[str]:
    """Modules whose imports a contract of pure parts bounds."""
    listed = set(listed_in_contracts())
    return {name for name in modules() if name in listed or within(name, listed)}


def listed_in_contracts() -> list[str]:
    """Entries of these contracts, as they are written."""
    return [
        module
        for contract in settings()["importlinter"]["contracts"]
        if contract["name"].startswith(CONTRACTS)
        for module in contract["source_modules"]
    ]


@cache
def covered() -> set[str]:
    """Modules of which every branch is tested."""
    run = settings()["coverage"]["run"]
    paths = {name: str(path.relative_to(ROOT)) for name, path in modules().items()}
    return {name for name, path in paths.items() if matches(path, run["include"])} - {
        name for name, path in paths.items() if matches(path, run["omit"])
    }


def matches(path: str, patterns: list[str]) -> bool:
    """Whether one of coverage's patterns is that of a path."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def within(module: str, packages: set[str]) -> bool:
    """Whether a module lies in one of some packages."""
    return any(module.startswith(f"{package}.") for package in packages)
