"""What says that it is pure is held to it: by what it may import, and by tests of every branch.

Benchmarks are no part of it: what they compute alone is covered, and imports what it measures.
"""

from tests.tidy import exceptions
from tests.tidy.purity import SAID, contracted, covered, listed_in_contracts, said
from tests.tidy.shrinking import strays
from tests.tidy.sources import is_package, modules


def product(names: set[str]) -> set[str]:
    """Packages pass on what their modules have, and decide nothing."""
    known = modules()
    return {
        name for name in names if not name.startswith("benchmarks") and not is_package(known[name])
    }


def test_what_says_that_it_is_pure_is_in_a_contract() -> None:
    assert strays(product(said()) - product(contracted()), exceptions.PURE_BY_WORD_ONLY) == []


def test_what_a_contract_keeps_pure_says_so() -> None:
    assert product(contracted()) - product(said()) == set()


def test_every_branch_of_pure_parts_is_covered() -> None:
    assert strays(product(contracted()) - product(covered()), exceptions.PURE_UNCOVERED) == []


def test_what_is_covered_is_pure() -> None:
    assert strays(product(covered()) - product(contracted()), exceptions.COVERED_WITH_IO) == []


def test_contracts_name_modules_once() -> None:
    listed = listed_in_contracts()
    assert sorted(set(listed)) == sorted(listed)
    assert set(listed) <= set(modules())


def test_the_word_begins_a_sentence() -> None:
    assert all(map(SAID.search, ("Pure: one.", "What is. Pure.", "What is.\n\nPure; it\nis.")))
    assert not any(map(SAID.search, ("What is pure.", "Purely.", "One. Pure but for reading.")))
