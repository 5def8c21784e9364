"""The mutations are tried by hand: here only that each still has the place that it changes."""

import pytest

from tests.mutations import MUTATIONS, Mutation
from tests.stages import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_has_one_place_and_tests(mutation: Mutation) -> None:
    assert (ROOT / mutation.path).read_text().count(mutation.old) == 1
    assert all(any((ROOT / folder).glob("test_*.py")) for folder in mutation.folders)
