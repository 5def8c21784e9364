"""Entries that were computed after a prefix which no prompt has."""

from typing import Any

import pytest

from engine_adapters.restore import Source
from engine_adapters.runner.link.link_runner import LinkRequest
from engine_adapters.runner.link.linked_prompt import EntryName
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.link.lab import LinkLab, after_sink, entry, ids, new

METHODS = ["naive", "full", "attnlink-6", "cacheblend-20", "query-6", "split-8"]


@pytest.mark.parametrize(
    ("source", "sink_count"),
    [(Source.KV, 1), (Source.HIDDEN, 4), (Source.KV, 9), (Source.HIDDEN, 9)],
)
def test_answers_are_those_of_the_reference(make_lab: Any, source: Source, sink_count: int) -> None:
    lab: LinkLab = make_lab(source)
    parts = [
        after_sink(13, 1, sink_count),
        entry(10, 2),
        new(2, 7),
        after_sink(9, 3, sink_count),
        after_sink(13, 1, sink_count),
        new(5),
    ]
    for method in METHODS:
        linked = lab.check(parts, method)
        assert linked.completion.restore.restored_tokens + linked.steps[0] == 52


@pytest.mark.parametrize("method", METHODS)
def test_what_is_lost_is_computed_after_the_sink(make_lab: Any, method: str) -> None:
    lab: LinkLab = make_lab()
    parts = [new(3, 7), after_sink(13, 1), after_sink(9, 3), after_sink(13, 1), new(5)]
    named = lab.named(parts)
    whole = dict(lab.store.chunks)
    for lost in ([0], [2, 5], list(range(12))):
        lab.store.chunks.clear()
        lab.store.chunks.update(whole)
        lab.lose(lost)
        lab.check(parts, method, named=named, token_budget=7)


def test_a_prompt_that_begins_with_the_entry_has_none_of_its_chunks(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    lab.generate([ids(12, 1)], sink_ids=ids(4, 90))
    layout = lab.state_format.layout
    with MemoryClient(lab.store) as client:
        assert not set(client.prefix_keys(layout, ids(12, 1))) & set(lab.store.chunks)
        # They are those of a prompt that begins with the sink.
        assert set(client.prefix_keys(layout, [*ids(4, 90), *ids(12, 1)])) <= set(lab.store.chunks)


def test_the_same_tokens_after_another_sink_are_another_entry(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    plain = lab.generate([ids(9, 1)])
    first = lab.generate([ids(9, 1)], sink_ids=[5, 6])
    second = lab.generate([ids(9, 1)], sink_ids=[5, 7])
    assert len({*plain, *first, *second}) == 3
    assert lab.generate([ids(9, 1)], sink_ids=[5, 6]) == first
    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        assert runner.entries.get(first[0]).sink_ids == (5, 6)
        request = LinkRequest(parts=[EntryName(first[0]), [3]], new_tokens_max=1)
        assert runner.link(request).prompt_tokens == 10
