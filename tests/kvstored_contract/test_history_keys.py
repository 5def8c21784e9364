"""Keys of histories that lost tokens: equal exactly where tokens and cuts are."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored_contract.keys import Cut, cut_key, history_keys, prefix_keys
from tests.kvstored_contract.test_keys import LAYOUT, hashed
from tests.support.untraced import UNTRACED

CHUNK_TOKENS = LAYOUT.chunk_tokens
Event = list[int] | tuple[int, tuple[range, ...]]
"""New tokens, or a cut: how many tokens it drops, and the kept ranges."""
tokens = st.lists(st.integers(0, 3), max_size=3 * CHUNK_TOKENS)
cut_values = st.builds(
    lambda dropped, kept: (dropped, kept),
    st.integers(1, 2),
    st.sampled_from([(), (range(1),), (range(2, 5),), (range(1), range(3, 5))]),
)


@dataclass(frozen=True)
class Log:
    """All tokens that a history ever had, and its cuts."""

    token_ids: tuple[int, ...] = ()
    cuts: tuple[Cut, ...] = field(default=())

    def then(self, event: "Event") -> "Log":
        if isinstance(event, list):
            return replace(self, token_ids=(*self.token_ids, *event))
        cut = Cut(first_token=len(self.token_ids), dropped_count=event[0], kept=event[1])
        return replace(self, cuts=(*self.cuts, cut))

    def after(self, events: "Sequence[Event]") -> "Log":
        log = self
        for event in events:
            log = log.then(event)
        return log

    def until(self, stop: int) -> "Log":
        """What the states of the tokens before ``stop``, as far as there are some, depend on."""
        stop = min(stop, len(self.token_ids))
        return Log(self.token_ids[:stop], tuple(cut for cut in self.cuts if cut.first_token < stop))

    def keys(self, namespace: str = "a") -> list[bytes]:
        return history_keys(
            namespace=namespace, layout=LAYOUT, token_ids=self.token_ids, cuts=self.cuts
        )


events = st.lists(st.one_of(tokens, cut_values), max_size=6)


def numbered(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))


def test_keys_of_cuts_are_what_the_documentation_says() -> None:
    cut = Cut(first_token=9, dropped_count=3, kept=(range(1), range(4, 9)))
    words = struct.pack("<7I", 1, 3, 2, 0, 1, 4, 9)
    assert cut_key(cut, parent=b"p" * 32, offset=1) == hashed(b"kvstored.cut.1", b"p" * 32, words)


@given(tokens)
def test_without_cuts_complete_chunks_have_the_keys_of_a_prefix(token_ids: list[int]) -> None:
    keys = history_keys(namespace="a", layout=LAYOUT, token_ids=token_ids)
    plain = prefix_keys(namespace="a", layout=LAYOUT, token_ids=token_ids)
    assert keys[: len(plain)] == plain
    assert len(keys) == -(-len(token_ids) // CHUNK_TOKENS)


@pytest.mark.parametrize("kept", [(), (range(1),), (range(8, 16),), (range(4), range(12, 16))])
@pytest.mark.parametrize("computed", [8, 16, 18])
def test_a_fresh_prompt_of_the_remaining_tokens_finds_nothing_of_after_a_cut(
    kept: tuple[range, ...], computed: int
) -> None:
    """States after a cut were computed with tokens that a fresh prompt does not have."""
    kept = tuple(one for one in kept if one.stop <= computed)
    dropped = computed - sum(map(len, kept))
    log = Log().after([numbered(computed), (dropped, kept), numbered(14, first=100)])
    remaining = [log.token_ids[position] for one in kept for position in one]
    remaining += log.token_ids[computed:]
    fresh = prefix_keys(namespace="a", layout=LAYOUT, token_ids=remaining)
    assert not set(fresh) & set(log.keys()[computed // CHUNK_TOKENS :])
    # Nor does a prompt of only what followed the cut, as when nothing was kept.
    alone = prefix_keys(namespace="a", layout=LAYOUT, token_ids=log.token_ids[computed:])
    assert not set(alone) & set(log.keys())


@pytest.mark.parametrize("computed", [8, 10])
def test_a_fork_from_before_the_cut_shares_what_came_before_it(computed: int) -> None:
    before = Log().after([numbered(computed)])
    cut = before.after([(4, (range(4, computed),)), numbered(10, first=50)])
    other = before.after([numbered(10, first=50)])
    assert cut.keys()[:2] == other.keys()[:2] == before.keys()[:2]
    assert not set(cut.keys()[2:]) & set(other.keys()[2:])


def test_a_fork_from_after_the_cut_shares_all_that_is_before_it() -> None:
    cut = Log().after([numbered(10), (4, (range(4, 10),)), numbered(10, first=50)])
    one, other = cut.then([1] * 8), cut.then([2] * 8)
    assert one.keys()[:5] == other.keys()[:5] == cut.keys()[:5]
    assert one.keys()[5] != other.keys()[5]


def test_where_a_cut_is_and_what_it_keeps_change_the_key() -> None:
    cuts = [
        Cut(first_token=4, dropped_count=2, kept=(range(2, 4),)),
        Cut(first_token=5, dropped_count=2, kept=(range(2, 4),)),
        Cut(first_token=4, dropped_count=3, kept=(range(2, 4),)),
        Cut(first_token=4, dropped_count=2, kept=(range(2),)),
        Cut(first_token=4, dropped_count=2, kept=(range(2, 3), range(3, 4))),
        Cut(first_token=4, dropped_count=2),
    ]
    token_ids = numbered(8)
    logs = [Log(tuple(token_ids), (cut,)) for cut in cuts]
    logs += [Log(tuple(token_ids), (cuts[0], cuts[0])), Log(tuple(token_ids))]
    assert len({log.keys()[1] for log in logs}) == len(logs)
    assert len({log.keys()[0] for log in logs}) == 1


@UNTRACED
@given(events, events, events)
def test_keys_are_equal_exactly_where_tokens_and_cuts_are(
    common: list[Event], first: list[Event], second: list[Event]
) -> None:
    one, other = (Log().after(common + rest) for rest in (first, second))
    for number, keys in enumerate(zip(one.keys(), other.keys(), strict=False)):
        stop = CHUNK_TOKENS * (number + 1)
        assert (keys[0] == keys[1]) == (one.until(stop) == other.until(stop))


@given(events, st.integers(0, 6))
def test_keys_go_on_from_the_last_known_one(history: list[Event], known: int) -> None:
    log = Log().after(history)
    keys = log.keys()
    known = min(known, len(log.token_ids) // CHUNK_TOKENS)
    rest = history_keys(
        namespace="a",
        layout=LAYOUT,
        token_ids=log.token_ids[known * CHUNK_TOKENS :],
        cuts=log.cuts,
        parent=keys[known - 1] if known else b"",
        first_token=known * CHUNK_TOKENS,
    )
    assert keys[known:] == rest


@given(events)
def test_namespaces_share_no_keys(history: list[Event]) -> None:
    log = Log().after(history)
    assert not set(log.keys("a")) & set(log.keys("b"))
