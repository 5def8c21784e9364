"""Linked prompts against a dense computation with explicit masks."""

from typing import Any

import pytest

from engine_adapters.link.entries import NAME_SUFFIX, Entries
from engine_adapters.link.errors import ExpiredError, LinkError
from engine_adapters.restore import Source
from engine_adapters.runner.link.link_runner import LinkRequest
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import CallName, MemoryClient
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.link.lab import (
    CACHE_TOKENS,
    CHUNK_TOKENS,
    NEW_TOKENS,
    LinkLab,
    entry,
    ids,
    new,
)

METHODS = [
    *("naive", "full", "attnlink-2", "attnlink-6", "attnlink-16", "cacheblend-20"),
    *("query-6", "split-8"),
]
CHOOSING = ("cacheblend", "query", "split")
SOURCES = {"kv": Source.KV, "hidden": Source.HIDDEN}
THREE = [entry(13, 1), entry(10, 2), entry(9, 3), new(5)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_answers_are_those_of_the_reference(make_lab: Any, source: Source, method: str) -> None:
    lab: LinkLab = make_lab(source)
    linked = lab.check(THREE, method)
    report = linked.completion.restore
    # Everything else was loaded, and no token was computed twice.
    assert report.restored_tokens + linked.steps[0] == 37
    assert linked.completion.computed_tokens == linked.steps[0] + NEW_TOKENS - 1
    # Where states are compared, the first layer of all tokens was computed. Where the query
    # chooses, what is computed anyway was: the question, and for a split its boundaries.
    layer_count = lab.model.config.layer_count
    probed = {"cacheblend-20": 37, "query-6": 5 * layer_count, "split-8": 15 * layer_count}
    assert report.recomputed_layer_tokens == probed.get(method, 0)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_entries_are_encoded(make_lab: Any, source: Source) -> None:
    """*Bug:* the last tokens of an entry, which complete no chunk, were computed at each link."""
    lab: LinkLab = make_lab(source, codec="zstd")
    linked = lab.check(THREE, "naive")
    assert linked.completion.restore.restored_tokens == 32
    lab.check(THREE, "attnlink-6", named=lab.named([entry(3, 1), *THREE])[1:])


def test_new_tokens_anywhere_and_an_entry_at_the_end(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    parts = [new(3, 7), entry(13, 1), new(1, 8), entry(0), entry(10, 2), entry(13, 1)]
    for method in METHODS:
        lab.check(parts, method)


def test_an_entry_that_comes_several_times_is_read_once(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    parts = [entry(12, 1), entry(5, 2), entry(12, 1), entry(12, 1), new(4)]
    linked = lab.check(parts, "naive")
    assert linked.completion.restore.restored_tokens == 41
    chunk_bytes = lab.state_format.layout.chunk_bytes()
    assert linked.completion.restore.device_bytes < 5.5 * chunk_bytes


def test_boundaries_of_sixteen_entries_take_one_step(make_lab: Any) -> None:
    """16 entries of 32 tokens at a boundary each fit a budget of 512 with their question."""
    lab: LinkLab = make_lab()
    parts = [*(entry(40, seed) for seed in range(16)), new(16)]
    linked = lab.check(parts, "attnlink-32", token_budget=512)
    # 15 boundaries between entries, and half of one before the question.
    assert linked.steps == [15 * 32 + 16 + 16, 1, 1]


def test_ranges_that_exceed_the_budget_take_several_steps(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    linked = lab.check(THREE, "attnlink-6", token_budget=7)
    assert linked.steps[:-2] == [7, 7, 6]


def test_nothing_of_a_linked_prompt_is_saved(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    before = set(lab.store.chunks)
    for method in METHODS:
        lab.link(named, method)
    assert set(lab.store.chunks) == before


def test_an_entry_shares_chunks_with_a_prompt_that_begins_with_it(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    lab.generate([ids(12, 1)])
    count = len(lab.store.chunks)
    layout = lab.state_format.layout
    with MemoryClient(lab.store) as client:
        keys = client.prefix_keys(layout, ids(12, 1))
    assert len(keys) == 3
    assert set(keys) <= set(lab.store.chunks)
    # A longer one that begins alike adds two chunks of states, and its words.
    lab.generate([ids(18, 1)])
    assert len(lab.store.chunks) == count + 2 + 1


@pytest.mark.parametrize("method", METHODS)
def test_chunks_that_are_lost_are_computed_in_place(make_lab: Any, method: str) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    whole = dict(lab.store.chunks)
    for lost in ([0], [1, 2], [3], [4], [5, 6, 9], list(range(12))):
        lab.store.chunks.clear()
        lab.store.chunks.update(whole)
        lab.lose(lost)
        linked = lab.check(THREE, method, named=named)
        # What was lost and what is linked are computed in one step, unless states are compared
        # between them.
        assert len(linked.steps) == NEW_TOKENS + method.startswith(CHOOSING)


def test_lost_chunks_that_exceed_the_budget(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    lab.lose(range(12))
    linked = lab.check(THREE, "attnlink-6", named=named, token_budget=5)
    assert max(linked.steps) == 5


def test_a_damaged_slice_costs_its_chunk_only(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    layout_id = lab.state_format.layout.layout_id
    keys = [key for key, one in lab.store.chunks.items() if one.layout_id == layout_id]
    lab.store.faults.lost_slices.add((keys[5], 1))
    linked = lab.check(THREE, "naive", named=named)
    assert linked.completion.restore.restored_tokens == 32 - CHUNK_TOKENS


def test_without_a_store_an_id_cannot_be_told(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    lab.store.kill()
    with pytest.raises(LinkError):
        lab.link(named, "naive")


def test_an_id_that_is_over_is_an_error_that_names_it(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    name = named[1]
    assert isinstance(name, EntryName)
    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        assert runner.entries.expire(name.entry_id)
        assert not runner.entries.expire(name.entry_id)
        with pytest.raises(ExpiredError, match=name.entry_id):
            runner.link(LinkRequest(parts=named, new_tokens_max=1))
        # Those that remain can be linked.
        runner.link(LinkRequest(parts=[named[0], [5]], new_tokens_max=1))


def test_the_same_tokens_have_one_id_and_are_computed_once(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    first = lab.generate([ids(9, 1), ids(5, 2), ids(9, 1), ()])
    assert first[0] == first[2]
    assert len(set(first)) == 3
    puts = len(lab.store.chunks)
    assert lab.generate([ids(5, 2), (), ids(9, 1)]) == [first[1], first[3], first[0]]
    assert len(lab.store.chunks) == puts


def test_states_that_are_gone_are_made_again(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    before = lab.generate([ids(9, 1)])
    lab.lose([0, 1, 2])
    assert lab.generate([ids(9, 1)]) == before
    linked = lab.check([entry(9, 1), new(2)], "naive")
    assert linked.completion.restore.restored_tokens == 9


def test_no_sequence_of_states_stays(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    lab.generate([ids(9, 1), ids(5, 2)])
    with MemoryClient(lab.store) as client:
        assert all(name.endswith("/context-cache") for name in client.sequences.list())


def test_a_sequence_of_states_stayed_where_nobody_deleted_it(make_lab: Any) -> None:
    """Bug: after a kill, or with a store that was away for a moment, its name stayed for ever."""
    lab: LinkLab = make_lab()
    lab.store.faults.silent.add(CallName.SEQUENCE_DELETE)
    first, second = lab.generate([ids(9, 1), ids(5, 2)])
    lab.store.faults.silent.clear()
    assert all(name.endswith(NAME_SUFFIX) for name, _ in lab.store.sequences)
    # Their last tokens, which complete no chunk, are stored all the same.
    named: list[PromptPart] = [EntryName(first), EntryName(second), ids(2, 50)]
    linked = lab.check([entry(9, 1), entry(5, 2), new(2)], "naive", named=named)
    assert linked.completion.restore.restored_tokens == 14


def test_an_entry_that_ended_while_it_was_made_again_had_a_dead_id(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the renewal made a sequence of that name, with nothing in it but when it is over."""
    lab: LinkLab = make_lab()
    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        (before,) = runner.generate_context_cache([ids(9, 1)], ttl_s=1000)
        look_up = runner.entries.look_up

        def look_up_and_end(*arguments: Any, **options: Any) -> Any:
            found = look_up(*arguments, **options)
            assert Entries(client, lab.state_format.layout.model).expire(before)
            return found

        monkeypatch.setattr(runner.entries, "look_up", look_up_and_end)
        (after,) = runner.generate_context_cache([ids(9, 1)], ttl_s=2000)
        assert [one.entry_id for one in runner.entries.list()] == [after]
        assert len(client.sequences.list()) == 1
    linked = lab.check([entry(9, 1), new(2)], "naive", named=[EntryName(after), ids(2, 50)])
    assert linked.completion.restore.restored_tokens == 9


def test_prompts_run_together(make_lab: Any) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(THREE)
    requests = [
        LinkRequest(parts=named, new_tokens_max=NEW_TOKENS, method=method) for method in METHODS
    ]
    with MemoryClient(lab.store) as client, lab.runner(client, token_budget=30) as runner:
        together = [completion.generated_ids for completion in runner.answer(requests)]
    alone = [lab.link(named, method).completion.generated_ids for method in METHODS]
    assert together == alone


@pytest.mark.parametrize(
    ("parts", "message"),
    [([()], "at least one token"), ([ids(CACHE_TOKENS, 1)], "exceed"), ([(97,)], "token id")],
)
def test_what_can_never_run_leaves_nothing_in_the_engine(
    make_lab: Any, parts: list[tuple[int, ...]], message: str
) -> None:
    lab: LinkLab = make_lab()
    good = LinkRequest(parts=[ids(4, 1)], new_tokens_max=1)
    bad = LinkRequest(parts=parts, new_tokens_max=1)
    with MemoryClient(lab.store) as client, lab.runner(client) as runner:
        with pytest.raises(RequestError, match=message):
            runner.answer([good, bad])
        if any(parts):
            with pytest.raises(RequestError, match=message):
                runner.generate_context_cache([ids(4, 1), *parts])
        assert runner._engine.is_idle
        with pytest.raises(ValueError, match="naive, full"):
            runner.link(LinkRequest(parts=[ids(4, 1)], new_tokens_max=1, method="best"))


def test_states_that_cannot_move_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("opt")
    write_opt(directory)
    model = Model.from_directory(directory)
    states = StateFormat.of_model(model, "learned", chunk_tokens=CHUNK_TOKENS)
    lab = LinkLab(model, states, None)  # type: ignore[arg-type]
    with MemoryClient(lab.store) as client, pytest.raises(LinkError, match="learned"):
        lab.runner(client)


def test_a_model_of_one_layer_has_no_states_to_compare(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("one")
    write_llama(directory, num_hidden_layers=1)
    model = Model.from_directory(directory)
    states = StateFormat.of_model(model, "one layer", chunk_tokens=CHUNK_TOKENS)
    lab = LinkLab(model, states, None)  # type: ignore[arg-type]
    (name,) = lab.generate([ids(9, 1)])
    with pytest.raises(LinkError, match="cacheblend-15 compares"):
        lab.link([EntryName(name), ids(2, 2)], "cacheblend-15")
    assert lab.link([EntryName(name), ids(2, 2)], "naive").steps[0] == 2
