"""A package's docstring lists its modules in reading order, one clause each."""

import re
from collections import Counter
from collections.abc import Iterator

from tests.tidy import exceptions
from tests.tidy.shrinking import strays
from tests.tidy.sources import docstring_of, is_package, modules

PRODUCT = ("kvstored", "kvstored_client", "kvstored_contract", "engine_adapters")
"""Benchmarks are found by their names, as a user gives them."""


def packages() -> dict[str, set[str]]:
    """By package, the modules and packages that lie in it."""
    known = modules()
    return {
        package: {name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == package}
        - {"__main__"}
        for package, path in known.items()
        if is_package(path) and package.split(".")[0] in PRODUCT
    }


def faults_of(package: str, inside: set[str]) -> Iterator[str]:
    """Modules that the docstring of a package does not name exactly once."""
    named = Counter(re.findall(r"``(\w+)``", docstring_of(modules()[package])))
    for name in sorted(inside):
        if named[name] != 1:
            yield f"{package} names {name} {named[name]} times"


def test_every_module_is_named_once_in_its_package() -> None:
    found = {package: list(faults_of(package, inside)) for package, inside in packages().items()}
    without = {package for package, missing in found.items() if missing}
    told = [one for package in without - exceptions.UNLISTED for one in found[package]]
    assert told + strays(without, exceptions.UNLISTED) == []
