"""What is computed of a linked prompt while its entries come."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.restore import Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.errors import StepError
from kvstored_client.testing import MemoryStore, Wait
from tests.engine_adapters.runner.link.lab import (
    ONE_BY_ONE,
    TOGETHER,
    LinkLab,
    Pace,
    after_sink,
    entry,
    new,
)
from tests.engine_adapters.runner.memory import bring_layers_on_wait

PARTS = [new(3, 7), entry(12, 1), entry(12, 2), entry(12, 3), new(4)]
"""With attnlink-4: 3 new tokens, 4 of each entry (one entry is one span), and 4 new ones."""


def bring_states_on_wait(store: MemoryStore, action: Callable[[], object]) -> None:
    """As ``bring_layers_on_wait``; the words of entries come at once."""
    bring_layers_on_wait(store, action)
    bring = store.faults.on_wait
    assert bring is not None

    def bring_all(wait: Wait) -> bool:
        if wait.layer is None:
            wait.deliver()
            return False
        return bring(wait)

    store.faults.on_wait = bring_all


@pytest.mark.parametrize("source", [Source.KV, Source.HIDDEN])
@pytest.mark.parametrize(
    ("pace", "steps"),
    [
        (ONE_BY_ONE, [(3, 0), (4, 1), (4, 2), (8, 3)]),
        # Some of an entry opens nothing.
        (Pace(4, 1), [(3, 0), (4, 3), (4, 6), (8, 9)]),
        # 3 tokens are not worth a step.
        (Pace(12, 4), [(7, 1), (4, 2), (8, 3)]),
        # The first two entries come together.
        (Pace(24, 1), [(3, 0), (8, 1), (8, 2)]),
        (TOGETHER, [(19, 1)]),
    ],
)
def test_computing_begins_before_the_last_entry_has_come(
    make_lab: Any,
    monkeypatch: pytest.MonkeyPatch,
    source: Source,
    pace: Pace,
    steps: list[tuple[int, int]],
) -> None:
    """Each step with its tokens, and how many spans had come before it.

    Nothing comes unless the engine waits for it, so the events have one order.
    """
    lab: LinkLab = make_lab(source)
    named = lab.named(PARTS)
    came: list[None] = []
    bring_states_on_wait(lab.store, lambda: came.append(None))
    seen: list[tuple[int, int]] = []
    compute = Engine._compute

    def watched(engine: Engine, segments: Any) -> Any:
        tokens = sum(part.token_count for part in segments)
        seen.append((tokens, len(came) // lab.model.config.layer_count))
        return compute(engine, segments)

    monkeypatch.setattr(Engine, "_compute", watched)
    linked = lab.check(PARTS, "attnlink-4", named=named, pace=pace)
    assert seen[:-2] == steps
    assert linked.completion.restore.restored_tokens == 24
    assert linked.completion.computed_tokens == 19 + 2


def test_entries_that_are_lost_do_not_keep_those_in_front_from_being_computed(
    make_lab: Any,
) -> None:
    """Also where some of an entry that was computed early is lost, and the same one comes again."""
    lab: LinkLab = make_lab()
    parts = [entry(13, 1), new(2, 8), entry(10, 2), entry(13, 1), entry(0), entry(9, 3), new(5)]
    named = lab.named(parts)
    whole = dict(lab.store.chunks)
    for lost in ([0], [1, 2], [4], [5, 6, 9], list(range(12))):
        for pace in (ONE_BY_ONE, Pace(4, 1), Pace(8, 6)):
            for method in ("naive", "attnlink-6", "full"):
                lab.store.chunks.clear()
                lab.store.chunks.update(whole)
                lab.lose(lost)
                lab.check(parts, method, named=named, pace=pace, token_budget=7)


@pytest.mark.parametrize("method", ["cacheblend-20", "query-6", "attnlink-6"])
def test_methods_that_look_at_all_states_compute_nothing_before(make_lab: Any, method: str) -> None:
    """So do entries with a sink, of which lost states are computed apart."""
    lab: LinkLab = make_lab()
    made = after_sink if method == "attnlink-6" else entry
    parts = [new(3, 7), made(12, 1), made(12, 2), new(4)]
    linked = lab.check(parts, method, pace=ONE_BY_ONE)
    assert linked.steps[1:] == [1, 1]


def test_a_step_that_fails_while_entries_come_ends_the_request(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab: LinkLab = make_lab()
    named = lab.named(PARTS)
    monkeypatch.setattr(lab.model, "forward", Mock(side_effect=RuntimeError("broken")))
    with pytest.raises(StepError, match="broken"):
        lab.link(named, "attnlink-4", pace=ONE_BY_ONE)
