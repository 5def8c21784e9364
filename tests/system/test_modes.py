"""Every mode, for every kind of model, through a real daemon: the same states and tokens."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from engine_adapters.restore import (
    ComputeCost,
    CostProfile,
    LayerSchedule,
    LoadCost,
    Mode,
    Source,
)
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.mode_choice import choose_schedule
from engine_adapters.runner.states.state_format import StateFormat, shape_of
from kvstored_client import Client
from tests.engine_adapters.runner.restored import restored
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S

CHUNK_TOKENS = 16
PROMPT_CHUNKS = 24
PROMPT_TOKENS = CHUNK_TOKENS * PROMPT_CHUNKS
NEW_TOKENS = 12
SPAN_CHUNKS = 5
EXACT = 1e-5
LAYERS = 6
TOKEN_BUDGET = 128
SHAPES = {
    "mha": {"kv_head_count": 4},
    "gqa": {"kv_head_count": 1},
    "opt": {"kv_head_count": 4, "family": Family.OPT},
}
COMPUTE_RICH = {"compute_token_s": 2.67e-6, "project_token_s": 6.67e-7}
IO_RICH = {"compute_token_s": 1e-4, "project_token_s": 3e-6}
"""Beside 2 us for reading a token's hidden states, and twice that for its keys and values."""
MODES = {
    "kv": (Mode.KV, COMPUTE_RICH),
    "hidden": (Mode.HIDDEN, COMPUTE_RICH),
    "hcache, compute-rich": (Mode.HCACHE, COMPUTE_RICH),
    "hcache, I/O-rich": (Mode.HCACHE, IO_RICH),
    "naive_hybrid": (Mode.NAIVE_HYBRID, COMPUTE_RICH),
    "auto, compute-rich": (Mode.AUTO, COMPUTE_RICH),
    "auto, I/O-rich": (Mode.AUTO, IO_RICH),
}
HCACHE = [name for name in MODES if name.startswith("hcache")]
MHA_SCHEDULES = {
    "kv": "6 KV",
    "hidden": "6 H",
    "hcache, compute-rich": "5 H + 1 RE",
    "hcache, I/O-rich": "5 H + 1 KV",
    "naive_hybrid": "4 KV + 2 RE",
    "auto, compute-rich": "6 H",
    "auto, I/O-rich": "4 H + 2 KV",
}
GQA_SCHEDULES = dict.fromkeys(MODES, "6 KV") | {
    "hidden": "6 H",
    "naive_hybrid": "5 KV + 1 RE",
}


@dataclass
class Case:
    """One model in one mode, with a history that is stored."""

    model: Model
    state_format: StateFormat
    prompt: list[int]
    computed: Engine
    completion: Completion

    def keys(self, client: Client) -> list[bytes]:
        return client.prefix_keys(self.state_format.layout, self.prompt)

    def run(self, client: Client | None, saver: StateSaver | None = None) -> Completion:
        return run(self.model, self.prompt, restorer=self.restorer(client), saver=saver)[0]

    def restorer(self, client: Client | None) -> Restorer | None:
        if client is None:
            return None
        span_bytes = self.state_format.span_bytes(SPAN_CHUNKS)
        return Restorer(
            client,
            self.state_format,
            self.model,
            RestoreOptions(span_bytes=span_bytes, step_tokens=48),
        )

    def check_states(self, client: Client, chunk_count: int) -> RestoreReport:
        """Restores into a cache of its own and compares with what was computed."""
        cache = self.model.make_cache(PROMPT_TOKENS + 7)
        restorer = self.restorer(client)
        assert restorer is not None
        report = restored(restorer, self.prompt, cache=cache, first_slot=5)
        count = report.restored_tokens
        assert count == chunk_count * CHUNK_TOKENS
        self.check_cache(cache, first_slot=5, token_count=count)
        return report

    def check_cache(self, cache: KvCache, *, first_slot: int, token_count: int) -> None:
        wanted = self.computed._cache
        for ours, theirs in ((cache.keys, wanted.keys), (cache.values, wanted.values)):
            restored = ours[:, first_slot : first_slot + token_count]
            assert (restored - theirs[:, :token_count]).abs().max() < EXACT


def run(
    model: Model,
    prompt: list[int],
    *,
    restorer: Restorer | None = None,
    saver: StateSaver | None = None,
    token_budget: int = TOKEN_BUDGET,
) -> tuple[Completion, Engine]:
    engine = Engine(
        model,
        cache_tokens=len(prompt) + NEW_TOKENS,
        token_budget=token_budget,
        requests_max=1,
        sink=saver,
        restorer=restorer,
    )
    engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
    (completion,) = engine.run()
    if restorer is not None:
        restorer.close()
    return completion, engine


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for the whole module: every mode has keys of its own."""
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process


@pytest.fixture(scope="module", params=SHAPES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(family: str, tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = tmp_path_factory.mktemp(family)
    shape = RandomModelShape(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        layer_count=LAYERS,
        head_count=4,
        position_count=2048,
        **SHAPES[family],  # type: ignore[arg-type]
    )
    write_random_model(directory, shape, ["the quick brown fox " * 50])
    return Model.from_directory(directory)


@pytest.fixture(params=MODES)
def mode_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def schedule(model: Model, mode_name: str) -> LayerSchedule:
    return planned(model, mode_name)


def planned(model: Model, mode_name: str) -> LayerSchedule:
    mode, measured = MODES[mode_name]
    costs: dict[str, Any] = dict(measured)
    shape = shape_of(model)
    profile = CostProfile(
        model="modes",
        machine="none",
        measured_at_s=1.0,
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        read_bytes_per_s=shape.hidden_bytes / 2e-6,
        **costs,
    )
    return choose_schedule(mode, shape, profile, now_s=time.time()).schedule


@pytest.fixture
def case(family: str, model: Model, schedule: LayerSchedule, client: Client) -> Case:
    state_format = StateFormat.of_model(model, family, schedule=schedule, chunk_tokens=CHUNK_TOKENS)
    vocabulary = model.config.vocab_size
    prompt = [(7 * n * n + 3 * n) % vocabulary for n in range(PROMPT_TOKENS)] + [1, 2, 3]
    saver = StateSaver(client, state_format)
    completion, engine = run(model, prompt, saver=saver)
    assert saver.finish().dropped_tokens == 0
    saver.close()
    return Case(model, state_format, prompt, engine, completion)


def test_the_planner_is_asked(family: str, model: Model) -> None:
    """Hidden states of a GQA model are larger than its keys and values, so these are kept."""
    expected = GQA_SCHEDULES if family == "gqa" else MHA_SCHEDULES
    assert {name: str(planned(model, name)) for name in MODES} == expected


def test_states_and_tokens_are_those_of_plain_prefill(case: Case, client: Client) -> None:
    case.check_states(client, PROMPT_CHUNKS)
    restored = case.run(client)
    assert restored.restore.restored_tokens == PROMPT_TOKENS
    assert restored.token_ids == case.completion.token_ids
    assert restored.restore.dram_bytes + restored.restore.device_bytes > 0


def test_recomputing_in_other_steps_is_plain_prefill(family: str, model: Model) -> None:
    """Mode recompute stores nothing, so that there is no layout to restore."""
    choice = choose_schedule(Mode.RECOMPUTE, shape_of(model), None, now_s=time.time())
    assert str(choice.schedule) == f"{LAYERS} RE"
    prompt = [(5 * n * n + n) % model.config.vocab_size for n in range(PROMPT_TOKENS)]
    whole, wanted = run(model, prompt, token_budget=PROMPT_TOKENS)
    pieces, found = run(model, prompt)
    assert pieces.token_ids == whole.token_ids
    assert pieces.restore.restored_tokens == 0
    count = len(prompt) + NEW_TOKENS - 1
    for ours, theirs in (
        (found._cache.keys, wanted._cache.keys),
        (found._cache.values, wanted._cache.values),
    ):
        assert (ours[:, :count] - theirs[:, :count]).abs().max() < EXACT


@pytest.mark.parametrize("token_s", [1e-5, 1e4], ids=["both sides", "the store"])
@pytest.mark.parametrize(
    "schedule",
    [
        LayerSchedule.of((Source.KV, LAYERS)),
        LayerSchedule.of((Source.HIDDEN, LAYERS)),
        LayerSchedule.of((Source.HIDDEN, LAYERS - 1), (Source.KV, 1)),
    ],
    ids=str,
)
def test_states_of_both_ends_are_those_of_plain_prefill(
    case: Case, client: Client, token_s: float
) -> None:
    """Computing a token takes ``token_s``, or so it is expected, and loading it 10 us.

    Hours are more than any machine stalls the store: what is there is loaded.
    """
    restorer = Restorer(
        client,
        case.state_format,
        case.model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=1e-4, token_s=token_s, attention_s=0.0),
            load=LoadCost(chunk_s=1e-5 * CHUNK_TOKENS),
            step_tokens=TOKEN_BUDGET,
            opening_s_max=PATIENCE_S,
        ),
    )
    restored, engine = run(case.model, case.prompt, restorer=restorer)
    assert restored.token_ids == case.completion.token_ids
    case.check_cache(engine._cache, first_slot=0, token_count=len(case.prompt))
    if token_s > 1.0:
        assert restored.restore.restored_tokens == PROMPT_TOKENS


@pytest.mark.parametrize("mode_name", HCACHE)
def test_a_chunk_that_was_deleted_ends_the_history(case: Case, client: Client) -> None:
    assert client.delete([case.keys(client)[10]]) == 1
    case.check_states(client, 10)
    saver = StateSaver(client, case.state_format)
    restored = case.run(client, saver)
    assert saver.finish().dropped_tokens == 0
    saver.close()
    assert restored.restore.restored_tokens == 10 * CHUNK_TOKENS
    assert restored.token_ids == case.completion.token_ids
    assert case.run(client).restore.restored_tokens == PROMPT_TOKENS


@pytest.mark.parametrize("mode_name", HCACHE)
def test_a_chunk_that_goes_while_it_is_read(
    case: Case, client: Client, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was found, so that layers of later chunks arrive all the same."""
    gone = case.keys(client)[12]
    pin = client.pin

    def pin_and_delete(*arguments: object, **options: object) -> object:
        found = pin(*arguments, **options)  # type: ignore[arg-type]
        with Client(daemon.socket_path) as other:
            other.delete([gone])
        return found

    monkeypatch.setattr(client, "pin", pin_and_delete)
    case.check_states(client, 12)
    restored = case.run(client)
    assert restored.restore.restored_tokens == 12 * CHUNK_TOKENS
    assert restored.token_ids == case.completion.token_ids


@pytest.mark.parametrize(
    "schedule", [LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 4), (Source.KV, 1))]
)
def test_what_survives_a_kill_is_read_from_the_devices(
    case: Case, client: Client, daemon: DaemonProcess
) -> None:
    daemon.restart()
    report = case.check_states(client, PROMPT_CHUNKS)
    assert report.dram_bytes == 0
    # Beside the slices, headers are read.
    assert report.device_bytes > PROMPT_CHUNKS * case.state_format.layout.chunk_bytes()
    assert case.run(client).token_ids == case.completion.token_ids
