"""The process that all tests of kills fork their daemons and clients from."""

from collections.abc import Iterator

import pytest

from tests.faults.kill.doomed import DOOMED
from tests.support.template import Template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """It imports everything once; its children have nothing to do with each other."""
    with Template(DOOMED.partition(":")[0]) as template:
        yield template
