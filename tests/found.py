"""``python -m tests.found ARGUMENTS`` imports every test that pytest finds, once, in one process.

Python compiles what a process imports for the first time, and leaves it beside the sources. After
a new installation that takes longer than to find all tests. The processes that run the tests
begin together, and each of them would compile the same.
"""

import contextlib
import io
import sys
from collections.abc import Sequence

import pytest


class Counter:
    """A plugin that counts the tests that are left to run."""

    def __init__(self) -> None:
        self.count = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Hears that all were found."""
        self.count = len(session.items)


def find(arguments: Sequence[str]) -> int:
    """Prints how many there are, or what pytest says where a file cannot be imported."""
    counter, said = Counter(), io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(["--collect-only", "-q", *arguments], plugins=[counter])
    sys.stdout.write(said.getvalue() if status else f"{counter.count} tests\n")
    return int(status)


if __name__ == "__main__":
    sys.exit(find(sys.argv[1:]))
