"""The map of tags against a plain model."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvstored.store.space import key_map as key_map_module
from kvstored.store.space.key_map import ABSENT, TAG_BITS, UNKNOWN, KeyMap, entries_of
from tests.support.untraced import UNTRACED

TAG_MAX = (1 << TAG_BITS) - 1
TAGS = st.one_of(
    st.integers(0, TAG_MAX),
    # Homes at both ends of the table, and tags that collide there.
    st.integers(0, 40),
    st.integers(TAG_MAX - 40, TAG_MAX),
)


class KeyMapMachine(RuleBasedStateMachine):
    """Random inserts and removals; then every tag has the rows that the model has."""

    def __init__(self) -> None:
        super().__init__()
        self.map = KeyMap()
        self.model: dict[int, int] = {}
        self.tags: set[int] = set()

    @rule(tag=TAGS)
    def insert(self, tag: int) -> None:
        row = len(self.tags) * 3 + len(self.model)
        while row in self.model:
            row += 1
        self.map.insert(tag, row)
        self.model[row] = tag
        self.tags.add(tag)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            row = data.draw(st.sampled_from(sorted(self.model)))
            tag = self.model.pop(row)
            self.map.remove(tag, row)
            with pytest.raises(KeyError, match=f"row {row}"):
                self.map.remove(tag, row)

    @rule()
    def refill(self) -> None:
        entries = [entries_of(np.array([tag], np.uint64), row) for row, tag in self.model.items()]
        self.map.fill(np.concatenate([np.zeros(0, np.uint64), *entries]))

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        assert len(self.map) == len(self.model)
        tags = sorted(self.tags)
        firsts = self.map.first_rows(np.array(tags, np.uint64)).tolist()
        for tag, first in zip(tags, firsts, strict=True):
            expected = sorted(row for row, other in self.model.items() if other == tag)
            assert sorted(self.map.rows(tag)) == expected
            assert first == UNKNOWN or first in (expected or [ABSENT])


KeyMapMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestKeyMapMachine = UNTRACED(KeyMapMachine.TestCase)


@pytest.mark.parametrize("stretch", [7, 1 << 20])
def test_a_map_that_grew_finds_everything(monkeypatch: pytest.MonkeyPatch, stretch: int) -> None:
    monkeypatch.setattr(key_map_module, "_STRETCH_ENTRIES", stretch)
    tags = np.random.default_rng(1).integers(0, TAG_MAX, 3000, np.uint64)
    grown, filled = KeyMap(), KeyMap()
    for row, tag in enumerate(tags.tolist()):
        grown.insert(tag, row)
    filled.fill(entries_of(tags, 0))
    for one in (grown, filled):
        assert len(one) == 3000
        assert all(row in one.rows(tag) for row, tag in enumerate(tags.tolist()))
        absent = one.first_rows(np.array([5], np.uint64)).tolist()
        assert absent in ([ABSENT], [UNKNOWN])


@pytest.mark.parametrize("tag", [0, TAG_MAX])
@pytest.mark.parametrize("filled", [False, True])
def test_very_many_rows_with_one_tag(tag: int, filled: bool) -> None:
    """They run over the spare entries behind the last home."""
    one = KeyMap()
    if filled:
        one.fill(np.concatenate([entries_of(np.array([tag], np.uint64), n) for n in range(700)]))
    else:
        for row in range(700):
            one.insert(tag, row)
    assert sorted(one.rows(tag)) == list(range(700))
    assert one.rows(tag ^ 1) == []
    for row in range(0, 700, 2):
        one.remove(tag, row)
    assert sorted(one.rows(tag)) == list(range(1, 700, 2))


def test_a_row_that_is_not_there_is_not_removed() -> None:
    one = KeyMap()
    one.insert(7, 1)
    with pytest.raises(KeyError, match="row 2"):
        one.remove(7, 2)
    assert one.rows(7) == [1]


def test_a_long_cluster_is_told_as_unknown() -> None:
    one = KeyMap()
    for row in range(20):
        one.insert(0, row)
    # Of the same home, behind the cluster.
    one.insert(1, 99)
    assert one.first_rows(np.array([1], np.uint64)).tolist() == [UNKNOWN]
    assert one.rows(1) == [99]


def test_an_entry_at_its_home_stays_when_the_one_before_it_goes() -> None:
    """Moved into the hole it would lie before its home, where nobody looks."""
    key_map = KeyMap()
    first, second = (home << (TAG_BITS - 10) for home in (5, 6))
    key_map.insert(first, 1)
    key_map.insert(second, 2)
    key_map.remove(first, 1)
    assert key_map.rows(first) == []
    assert key_map.rows(second) == [2]
