"""A process alone, whose store in memory is slow: it computes what does not come."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import pytest
import torch
from torch import distributed
from torch.distributed import Work

from engine_adapters.restore import ComputeCost
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.ranks import (
    ModelShard,
    ParallelOptions,
    ParallelRestorer,
    RankGroups,
)
from engine_adapters.runner.ranks.collective_calls import CollectiveCalls
from kvstored_client.testing import Delivery, Faults, MemoryClient, MemoryStore, StoredChunk
from kvstored_protos.v1.store_pb2 import MatchRequest
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.memory import (
    Clock,
    at,
    bring_layers_on_wait,
    let_waits_take_time,
)
from tests.engine_adapters.runner.parallel_rank import CHUNK_TOKENS, make_format
from tests.support.waiting import PATIENCE_S

CHUNKS = 16
TOKENS = [(7 * n * n + 3 * n) % 97 for n in range(CHUNKS * CHUNK_TOKENS + 5)]
COMPUTE = ComputeCost(step_s=0.0, token_s=1e-4, attention_s=0.0)
"""All of them are computed in 51 ms."""
OPTIONS = ParallelOptions(timeout_s=600.0, compute=COMPUTE, least_wait_s=0.01)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankGroups]:
    file = tmp_path_factory.mktemp("ranks") / "rendezvous"
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    world = distributed.group.WORLD
    assert world is not None
    yield RankGroups(tensor=world, model=world)
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("model")
    write_llama(folder, num_hidden_layers=2)
    return Model.from_directory(folder)


class Restoration:
    """Of a history that a store holds."""

    def __init__(self, model: Model, groups: RankGroups, faults: Faults, kinds: str = "HK") -> None:
        self.model, self.groups = model, groups
        self.clock: Callable[[], float] = time.perf_counter
        self.format = make_format(model, kinds)
        self.store = MemoryStore(faults=faults)
        self.client = MemoryClient(self.store, room_bytes=1 << 24)
        layout = self.format.layout
        for key in self.client.prefix_keys(layout, TOKENS):
            self.store.chunks[key] = StoredChunk(
                layout_id=layout.layout_id,
                slices=tuple(bytes(layout.slice_bytes(layer)) for layer in range(2)),
                token_count=CHUNK_TOKENS,
            )

    def run(self, options: ParallelOptions) -> RestoreReport:
        config = self.model.config
        shard = ModelShard.of_rank(
            layer_count=config.layer_count,
            kv_head_count=config.kv_head_count,
            tensor_rank=0,
            tensor_size=1,
            stage=0,
            stage_count=1,
        )
        restorer = ParallelRestorer(
            self.client,
            self.format,
            {layer: self.model.kv_projection(layer) for layer in shard.layers},
            self.groups,
            shard=shard,
            device=torch.device("cpu"),
            options=options,
            clock=self.clock,
        )
        shape = (len(shard.layers), len(TOKENS), len(shard.heads), config.head_dim)
        keys, values = torch.zeros(shape), torch.zeros(shape)
        return restorer.restore(TOKENS, keys=keys, values=values)


def test_a_silent_store_was_waited_for_thirty_seconds(model: Model, groups: RankGroups) -> None:
    """Bug: other ranks had a limit of their own, and the store only the time-out."""
    faults = Faults(delivery=Delivery.HELD)
    restoration = Restoration(model, groups, faults)
    clock = restoration.clock = Clock()
    # The look-up takes no time of this clock: it always leaves some for loading.
    let_waits_take_time(restoration.store, clock, least_s=1e-6)
    assert restoration.run(OPTIONS).restored_tokens == 0
    assert len(restoration.store.reads) >= 1
    assert clock.now_s < 1.0


def test_a_fast_store_is_restored_batch_after_batch(model: Model, groups: RankGroups) -> None:
    restoration = Restoration(model, groups, Faults())
    options = replace(OPTIONS, least_wait_s=600.0)
    assert restoration.run(options).restored_tokens == CHUNKS * CHUNK_TOKENS
    # 1, 2, 4, 8 chunks and the rest; each of two layers of another size.
    batches = len(restoration.store.reads)
    whole = Restoration(model, groups, Faults())
    assert whole.run(replace(options, compute=None)).restored_tokens == CHUNKS * CHUNK_TOKENS
    assert batches == 5 * len(whole.store.reads)


BATCHES = (1, 2, 4, 8, 1)
"""Chunks of each."""
CHUNK_S = COMPUTE.token_s * CHUNK_TOKENS


def timed(restoration: Restoration, load_s: float) -> Clock:
    """Has each chunk take ``load_s`` on a clock that stands still otherwise, all in layer 0."""
    clock = restoration.clock = Clock()
    durations = iter(chain.from_iterable((load_s * count, 0.0) for count in BATCHES))
    bring_layers_on_wait(restoration.store, lambda: clock.advance(next(durations)))
    return clock


def test_what_was_loaded_gained_nothing(model: Model, groups: RankGroups) -> None:
    """A store of twice the pace of computing, which spends the stake alone twelve times.

    Fails when a batch does not gain what computing it costs: the second one is given up then.
    """
    restoration = Restoration(model, groups, Faults(), "KK")
    clock = timed(restoration, CHUNK_S * 0.49)
    report = restoration.run(replace(OPTIONS, least_wait_s=0.0))
    assert report.restored_tokens == CHUNKS * CHUNK_TOKENS
    assert clock.now_s == pytest.approx(CHUNKS * CHUNK_S * 0.49)


def test_a_rank_that_others_waited_for_made_their_stores_silent(
    model: Model, groups: RankGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the time in collective calls counted as a silence of the store, and ended loading."""
    restoration = Restoration(model, groups, Faults(), "KK")
    clock = timed(restoration, CHUNK_S * 0.01)
    make = CollectiveCalls.make

    def slow(calls: CollectiveCalls, begin: Callable[[], Work | None]) -> None:
        def begun() -> Work | None:
            clock.advance(CHUNK_S * 0.7)
            return begin()

        make(calls, begun)

    monkeypatch.setattr(CollectiveCalls, "make", slow)
    report = restoration.run(replace(OPTIONS, least_wait_s=0.0))
    assert report.restored_tokens == CHUNKS * CHUNK_TOKENS


ALL_S = COMPUTE.token_s * len(TOKENS)


@pytest.mark.parametrize(("share", "restored"), [(0.03, CHUNKS), (0.05, 0)])
def test_a_store_that_does_not_say_what_it_has_was_waited_for_ten_seconds(
    share: float, restored: int, model: Model, groups: RankGroups
) -> None:
    """At most 4 % of computing everything, as all that a store may cost in vain."""
    restoration = Restoration(model, groups, Faults())
    clock = restoration.clock = Clock()
    ended = threading.Event()

    def answer_late() -> None:
        clock.advance(share * ALL_S)
        # An answer that comes in time may come at once.
        assert restored or ended.wait(PATIENCE_S)

    restoration.store.faults.before = at(MatchRequest, answer_late)
    report = restoration.run(replace(OPTIONS, least_wait_s=0.0))
    ended.set()
    assert report.restored_tokens == restored * CHUNK_TOKENS
    assert report.duration_s == pytest.approx(share * ALL_S)


def test_what_the_look_up_took_is_not_there_for_loading(model: Model, groups: RankGroups) -> None:
    """Bug: the limit of loading began after the look-up."""
    restoration = Restoration(model, groups, Faults(), "KK")
    clock = timed(restoration, CHUNK_S * 0.15)
    restoration.store.faults.before = at(MatchRequest, lambda: clock.advance(0.039 * ALL_S))
    report = restoration.run(replace(OPTIONS, least_wait_s=0.0))
    assert report.restored_tokens == 0
