"""Computing from the front while loading from the back: the tokens never change."""

from collections.abc import Callable
from functools import cache
from typing import cast

import hypothesis
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import StoredPieces
from engine_adapters.restore import (
    Action,
    ComputeCost,
    LayerSchedule,
    LoadCost,
    Rates,
    Source,
)
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.cake_restoration import CakeRestoration
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import OPENING_S_MAX, RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import RAW
from kvstored_client.testing import MemoryClient
from kvstored_protos.v1.store_pb2 import PinRequest
from tests.engine_adapters.runner.arrivals import garbled
from tests.engine_adapters.runner.cake_lab import (
    CHUNK_TOKENS,
    CHUNKS,
    EXACT,
    EXACT_IN_ANY_STEPS,
    PROMPT,
    Lab,
    LabClient,
    check_states,
    restore,
)
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.memory import at, make_store
from tests.support import labs
from tests.support.seeds import seed
from tests.support.waiting import wait_until

MIXED = LayerSchedule((Source.HIDDEN, Source.HIDDEN, Source.KV))
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, 3)),
    "hidden": LayerSchedule.of((Source.HIDDEN, 3)),
    "mixed": MIXED,
}

LabOf = Callable[[str, str, str, int], Lab]


@pytest.fixture(scope="module", params=["kv", "hidden"])
def lab(request: pytest.FixtureRequest, model: Model) -> Lab:
    return Lab(model, SCHEDULES[request.param])


@pytest.fixture(scope="module", params=["raw", "zstd"])
def codec_lab(request: pytest.FixtureRequest, lab: Lab) -> Lab:
    """Both kinds of states, as they are and encoded without a loss."""
    return lab if request.param == RAW else Lab(lab.model, lab.schedule, request.param)


@pytest.fixture(scope="module")
def lab_of(model: Model, tmp_path_factory: pytest.TempPathFactory) -> LabOf:
    """The lab of a model, a schedule, a codec and a chunk size, made once."""
    mha, opt = tmp_path_factory.mktemp("mha"), tmp_path_factory.mktemp("opt")
    write_llama(mha)
    write_opt(opt)
    models = {
        "gqa": model,
        "mha": Model.from_directory(mha),
        "opt": Model.from_directory(opt),
    }

    @cache
    def make(model_name: str, schedule_name: str, codec: str, chunk_tokens: int) -> Lab:
        return Lab(models[model_name], SCHEDULES[schedule_name], codec, chunk_tokens)

    return make


def slow_restorer(lab: Lab, client: LabClient, *, opening_s_max: float = OPENING_S_MAX) -> Restorer:
    """Of chunks that are expected to take a second each, by the client's clock."""
    return Restorer(
        client,
        lab.format,
        lab.model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=0.2, token_s=0.05, attention_s=0.0),
            load=LoadCost(chunk_s=1.0),
            step_tokens=16,
            opening_s_max=opening_s_max,
            clock=client.clock,
        ),
    )


def test_both_sides_meet(codec_lab: Lab) -> None:
    restored = restore(codec_lab, LabClient(codec_lab.chunks), arrivals=(2,))
    report = restored.completion.restore
    assert report.meeting_token is not None
    assert 0 < report.meeting_token < len(PROMPT) - CHUNK_TOKENS
    assert report.restored_tokens == len(PROMPT) - 1 - report.meeting_token
    assert [sample.action for sample in restored.samples].count(Action.JUMP) == 1
    assert (report.decode_s > 0) == (codec_lab.codec != RAW)


def test_restored_states_are_those_that_were_computed(codec_lab: Lab) -> None:
    restored = restore(codec_lab, LabClient(codec_lab.chunks), arrivals=(2,))
    check_states(codec_lab, restored)


def test_a_store_that_has_everything_at_once_leaves_the_last_token_to_compute(lab: Lab) -> None:
    client = LabClient(lab.chunks)
    restored = restore(lab, client, arrivals=(100,), chunk_s=0.02)
    assert restored.completion.restore.restored_tokens == len(PROMPT) - 1


def test_a_hopeless_store_is_not_asked(lab: Lab) -> None:
    client = LabClient(lab.chunks)
    restored = restore(lab, client, chunk_s=1e6)
    assert client.store.reads == []
    assert restored.completion.restore.restored_tokens == 0


def test_pessimism_locked_itself_in(lab: Lab) -> None:
    """Chunks of 600 s were seen, and computing all takes 7.25 s: no plan loads anything."""
    client = LabClient(lab.chunks)
    restorer = slow_restorer(lab, client)
    restorer.rates.chunk_s.add(8 * 600.0, units=8)
    attempts = 0
    while not client.store.reads and attempts < 20:
        attempts += 1
        lab.run(lab.engine(restorer=restorer), PROMPT, client=client, arrivals=(100,))
    restorer.close()
    assert client.store.reads
    assert attempts > 5


def test_a_store_that_falls_silent_is_not_waited_for(lab: Lab) -> None:
    client = LabClient(lab.chunks)
    restored = restore(lab, client, arrivals=(0,))
    assert client.arrivals.waits == 0
    assert restored.completion.restore.restored_tokens == 0


def test_the_compute_pointer_is_on_the_board(lab: Lab) -> None:
    """A store that is slower than expected sees the pointer come, a step at a time."""
    client = LabClient(lab.chunks)
    restore(lab, client, arrivals=(0,), chunk_s=0.2)
    (read,) = client.store.reads
    chunk_count = len(read.keys)
    assert chunk_count > CHUNKS // 2
    assert len(read.pointers) > 3
    assert read.pointers == sorted(read.pointers)
    assert read.pointers[-1] == chunk_count


def test_gaps_are_computed_and_stored(codec_lab: Lab) -> None:
    """Chunks that were missing in the middle are stored afterwards, and none twice."""
    flags = tuple(chunk not in (3, 4, 9) for chunk in range(CHUNKS))
    client = LabClient(codec_lab.stored(flags))
    restored = restore(codec_lab, client, arrivals=(3,), saves=True)
    assert restored.completion.restore.restored_tokens > 0
    assert set(client.store.chunks) >= set(codec_lab.keys)
    for key in codec_lab.keys:
        ours, first = (
            codec_lab.states_of(chunks[key].slices)
            for chunks in (client.store.chunks, codec_lab.chunks)
        )
        assert (ours - first).abs().max() < EXACT


def test_an_arena_of_one_chunk_suffices(codec_lab: Lab) -> None:
    client = LabClient(codec_lab.chunks, room_bytes=codec_lab.format.span_bytes(1))
    restored = restore(codec_lab, client, arrivals=(100,), chunk_s=0.02)
    assert {len(read.keys) for read in client.store.reads} == {1}
    assert restored.completion.restore.restored_tokens > 0


def test_an_arena_without_room_is_a_miss(lab: Lab) -> None:
    restored = restore(lab, LabClient(lab.chunks, room_bytes=0))
    assert restored.completion.restore.restored_tokens == 0


def test_an_absent_daemon_is_a_miss(lab: Lab) -> None:
    client = LabClient(lab.chunks)
    client.store.kill()
    restore(lab, client)


def test_nothing_of_a_lost_session_is_used(codec_lab: Lab) -> None:
    """Neither what has arrived and was not taken yet, whatever became of its bytes."""
    client = LabClient(codec_lab.chunks)
    client.arrivals.dies_after = 5
    restored = restore(codec_lab, client, arrivals=(0, 0, 0, 100), chunk_s=0.5)
    assert restored.completion.restore.restored_tokens == 0


def test_a_chunk_lost_in_the_tail_is_computed_and_stored_again(codec_lab: Lab) -> None:
    client = LabClient(codec_lab.stored((True,) * CHUNKS))
    gone = codec_lab.keys[CHUNKS - 2]
    client.store.faults.after = at(PinRequest, lambda: client.store.chunks.pop(gone))
    restored = restore(codec_lab, client, arrivals=(100,), chunk_s=0.02, saves=True)
    assert restored.completion.restore.restored_tokens == (CHUNKS - 1) * CHUNK_TOKENS
    assert gone in client.store.chunks


def test_a_fault_of_the_reader_is_a_miss(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    client = LabClient(lab.chunks)

    def fail() -> None:
        raise RuntimeError("a bug")

    client.store.faults.before = at(PinRequest, fail)
    restore(lab, client)
    assert "reading a history failed" in caplog.text


class EndedReader:
    """A reader that found everything stored and ended before it read anything."""

    stored = StoredPieces(
        pieces=pieces_of([bytes(32)] * CHUNKS, chunk_tokens=CHUNK_TOKENS),
        is_stored=(True,) * CHUNKS,
    )
    is_ended = True
    spans = ()

    def load(self, runs: object) -> None:
        pass

    def reach(self, chunk: int) -> None:
        pass

    def read_bytes(self) -> tuple[int, int]:
        return 0, 0

    def decode_s(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


def test_it_is_over_when_nothing_more_can_come(lab: Lab) -> None:
    """An ordinary prefill then, which does not stand behind all others any more."""
    compute = ComputeCost(step_s=0.2, token_s=0.05, attention_s=0.0)
    load = LoadCost(chunk_s=0.02)
    restoration = CakeRestoration(
        cast("SpanReader", EndedReader()),
        lab.format,
        LayerLoader(lab.model, lab.format),
        Target(token_ids=PROMPT, cache=lab.model.make_cache(len(PROMPT)), first_slot=0),
        Rates(load, token_budget=16),
        RestoreOptions(clock=lambda: 0.0),
        compute=compute,
        load=load,
    )
    assert restoration.advance(16) == 0
    assert restoration.state.is_over
    assert restoration.state.position == 0
    # All of it was lost, so all of it is saved again.
    assert restoration.close().first_unstored == 0


def test_a_reader_seemed_as_slow_as_its_chunks_were_taken(lab: Lab) -> None:
    """Bug: only chunks that were taken counted as arrived, at most a few in every step.

    Twelve come within the first step of a second, of which each later one takes one.
    """
    client = LabClient(lab.chunks)
    restorer = slow_restorer(lab, client, opening_s_max=600.0)
    restoration = restorer.begin(PROMPT, cache=lab.model.make_cache(256), first_slot=0)
    assert isinstance(restoration, CakeRestoration)
    wait_until(lambda: restoration.advance(16) > 0)
    # A read is a span of the reader's a moment after it was begun.
    wait_until(lambda: bool(restoration._reader.spans))
    expected_s = restorer.rates.chunk_s.value
    client.arrivals.deliver(12)
    client.clock.advance(1.0)
    for _ in range(3):
        restoration.advance(16, piece_tokens=CHUNK_TOKENS)
        client.clock.advance(1.0)
    # Twelve within 1 s, where eight are remembered: not much is left of what was expected.
    assert restorer.rates.chunk_s.value == pytest.approx(1 / 12)
    assert expected_s == 1.0
    assert restoration.state.position == 0
    restoration.close()
    restorer.close()


def test_a_layout_that_is_not_stored_as_a_whole_is_refused(model: Model) -> None:
    layers = model.config.layer_count
    schedule = LayerSchedule.of((Source.COMPUTE, 1), (Source.KV, layers - 1))
    state_format = StateFormat.of_model(model, "cake", schedule=schedule, chunk_tokens=8)
    with pytest.raises(ValueError, match="1 layers of this layout are not stored"):
        Restorer(
            MemoryClient(make_store()),
            state_format,
            model,
            RestoreOptions(
                way=Way.BOTH_ENDS,
                compute=ComputeCost(step_s=1.0, token_s=1.0, attention_s=0.0),
                load=LoadCost(chunk_s=1.0),
                step_tokens=16,
            ),
        )


@labs.RESTORATIONS.sizes("examples")
def test_whatever_happens_the_tokens_equal_plain_recompute(examples: int, lab_of: LabOf) -> None:
    @hypothesis.seed(seed())
    @settings(max_examples=examples)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        check_restoration(data, lab_of)

    check()


def check_restoration(data: st.DataObject, lab_of: LabOf) -> None:
    """The tokens are equal, and so are the states that the cache holds of the prompt.

    Random meeting points, gaps, damage, models, layouts, chunks, codecs, steps and failures.
    """
    lab = lab_of(
        data.draw(st.sampled_from(["gqa", "mha", "opt"]), "model"),
        data.draw(st.sampled_from(list(SCHEDULES)), "schedule"),
        data.draw(st.sampled_from(["raw", "zstd"]), "codec"),
        data.draw(st.sampled_from([4, 8, 16]), "tokens of a chunk"),
    )
    chunk_count = len(lab.keys)
    flags = st.lists(st.booleans(), min_size=chunk_count, max_size=chunk_count)
    client = LabClient(
        lab.stored(tuple(data.draw(flags))),
        room_bytes=lab.format.span_bytes(data.draw(st.integers(0, 2 * chunk_count))),
    )
    damaged = st.lists(st.sampled_from(lab.keys), max_size=4).map(set)
    # The daemon serves no bytes whose checksum is wrong; others may not be what was encoded.
    layers = range(lab.format.layout.layer_count)
    client.store.faults.lost_slices = {
        (key, layer) for key in data.draw(damaged) for layer in layers
    }
    for key in client.store.chunks.keys() & (data.draw(damaged) if lab.codec != RAW else set()):
        client.store.chunks[key] = garbled(client.store.chunks[key])
    client.arrivals.dies_after = data.draw(st.none() | st.integers(0, chunk_count))
    prompt_tokens = data.draw(st.integers(1, len(PROMPT)))
    restored = restore(
        lab,
        client,
        prompt_tokens=prompt_tokens,
        arrivals=tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))),
        token_budget=data.draw(st.sampled_from([1, 5, 8, 16, 64])),
        span_chunks=data.draw(st.integers(1, chunk_count)),
        chunk_s=data.draw(st.sampled_from([0.01, 0.1, 0.5, 1.0, 5.0])),
        saves=data.draw(st.booleans()),
    )
    check_states(lab, restored, prompt_tokens, difference_max=EXACT_IN_ANY_STEPS)
    report = restored.completion.restore
    event("something was loaded" if report.restored_tokens else "nothing was loaded")
    event("both sides met" if report.meeting_token else "one side did all")
