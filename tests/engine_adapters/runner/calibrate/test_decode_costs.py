"""What decoding costs: measured by ``calibrate``, and counted by the plan of a turn."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.errors import CodecError
from engine_adapters.codecs.int8 import Int8Codec
from engine_adapters.restore import CostProfile, LoadCost, Mode, Source, load_profile, save_profile
from engine_adapters.runner import calibrate_command, turn
from engine_adapters.runner.calibrate.calibrate import QUICK
from engine_adapters.runner.calibrate.decode_costs import DecodeCosts, DecodeTimer
from engine_adapters.runner.calibrate.profile_place import machine_name
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.states.mode_choice import ModeChoice, choose_schedule
from engine_adapters.runner.states.state_format import StateFormat, shape_of
from kvstored_client import RAW, Client
from tests.engine_adapters.runner.calibrate.moments import BadMoment
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.test_main import CliClient
from tests.support.daemon import MIB, DaemonProcess

SLICE_TOKENS = 8
REPEATS = 3
SMALL_DRAM = {"dram": {"capacity_bytes": 8 * MIB}}
"""So little that it is soon full of other chunks."""
MakeTokens = Callable[[int, int], list[int]]


def timer(model: Model) -> DecodeTimer:
    """With a clock by which every decoding takes one second."""
    ticks = itertools.count()
    return DecodeTimer(model, repeats=REPEATS, clock=lambda: float(next(ticks)))


Calibrate = Callable[[str], tuple[CostProfile, dict[str, Any]]]


@pytest.fixture
def calibrated(
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Calibrate]:
    """Measures with a codec, for histories of 300 tokens: what is in the file, and the report."""
    path = tmp_path / "profile.json"
    # Nothing here asks how steady the machine is.
    monkeypatch.setattr(calibrate_command, "QUICK", replace(QUICK, pause_s=0.0))
    with DaemonProcess(tmp_path, overrides=SMALL_DRAM) as daemon:
        command = [str(directory), "--quick", "--json", "--profile", str(path)]
        command += ["--socket", str(daemon.socket_path), "--history-tokens", "300"]

        def calibrate(codec: str) -> tuple[CostProfile, dict[str, Any]]:
            capsys.readouterr()
            calibrate_command.run([*command, "--codec", codec])
            return load_profile(path), json.loads(capsys.readouterr().out)

        yield calibrate


def test_calibrate_measures_the_codec_that_is_asked_for(
    model: Model, calibrated: Calibrate
) -> None:
    for codec in (RAW, "zstd", "int8"):
        profile, report = calibrated(codec)
        decode_s = (profile.decode_hidden_token_s, profile.decode_kv_token_s)
        assert [seconds > 0 for seconds in decode_s] == [codec != RAW] * 2
        assert profile.codec == report["codec"] == codec
        assert profile.planned_tokens == report["planned_tokens"] == 300
        assert report["decode_kv_us_per_token"] == decode_s[1] * 1e6
        assert (report["decode_spread"] > 1) == (codec != RAW)
        whole = StateFormat.of_model(model, "any").encoded(codec)
        planned = profile.moving(whole.moved_share)
        io_s = planned.costs(1024, codec=codec).io_kv_s
        assert report["io_kv_us_per_token"] == io_s * 1e6 / 1024
        for mode in (Mode.HCACHE, Mode.AUTO):
            choice = choose_schedule(mode, shape_of(model), planned, now_s=0.0, codec=codec)
            assert report[mode.value] == str(choice.schedule)


def test_calibrate_reports_what_is_stored_if_decoding_is_slow(
    calibrated: Calibrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = DecodeCosts(hidden_token_s=2.0, kv_token_s=1.0)
    monkeypatch.setattr(DecodeTimer, "measure", lambda *_, **__: slow)
    profile, report = calibrated("zstd")
    assert (profile.decode_hidden_token_s, profile.decode_kv_token_s) == (2.0, 1.0)
    assert report["auto"] == "3 RE"


def test_slices_of_states_that_the_model_computes_are_decoded(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Tensor] = []

    def decode(codec: Int8Codec, payload: Payload, out: Tensor) -> None:
        original(codec, payload, out)
        decoded.append(out.clone())

    original = Int8Codec.decode
    monkeypatch.setattr(Int8Codec, "decode", decode)
    costs = timer(model).measure("int8", chunk_tokens=SLICE_TOKENS)
    assert costs == DecodeCosts(hidden_token_s=1 / SLICE_TOKENS, kv_token_s=1 / SLICE_TOKENS)
    config = model.config
    assert len(decoded) == 6 * (1 + REPEATS)
    shapes = [tuple(states.shape) for states in decoded[:6]]
    kv_shape = (2, SLICE_TOKENS, config.kv_head_count, config.head_dim)
    assert shapes == [(SLICE_TOKENS, config.hidden_size)] * 3 + [kv_shape] * 3
    for states in decoded:
        rows = states if states.ndim == 2 else states.transpose(0, 1).flatten(1)
        assert len(torch.unique(rows, dim=0)) == SLICE_TOKENS


def test_a_bad_moment_was_all_that_a_calibration_saw_of_decoding(model: Model) -> None:
    """Repetitions follow each other after a pause, all slices in each, and tell their spread."""
    moment = BadMoment()
    timer = DecodeTimer(model, repeats=REPEATS, clock=moment.clock, pause=moment.pause)
    costs = timer.measure("int8", chunk_tokens=SLICE_TOKENS)
    assert costs == DecodeCosts(
        hidden_token_s=1 / SLICE_TOKENS, kv_token_s=1 / SLICE_TOKENS, spread=4.0
    )
    assert moment.pause_count == REPEATS - 1


def test_a_chunk_is_no_longer_than_what_the_model_can_compute(model: Model) -> None:
    count = model.config.position_count
    costs = timer(model).measure("zstd", chunk_tokens=2 * count)
    assert costs.kv_token_s == pytest.approx(1 / count)


def test_raw_states_are_not_decoded_and_unknown_codecs_refused(model: Model) -> None:
    assert timer(model).measure(RAW, chunk_tokens=SLICE_TOKENS) == DecodeCosts()
    with pytest.raises(CodecError, match="no codec is named 'gzip'"):
        timer(model).measure("gzip", chunk_tokens=SLICE_TOKENS)


class Turns:
    """Turns of one model with a profile in which decoding takes as long as is said."""

    def __init__(self, model: Model, directory: Path, path: Path, prompt: list[int]) -> None:
        self._model = model
        self._directory = directory
        self._path = path
        self._prompt = prompt

    def profile(self, decode_token_s: float) -> CostProfile:
        shape = shape_of(self._model)
        return CostProfile(
            model=model_fingerprint(self._directory, self._model.config),
            machine=machine_name(self._model.device),
            measured_at_s=1e10,
            hidden_bytes=shape.hidden_bytes,
            kv_bytes=shape.kv_bytes,
            compute_token_s=8e-6,
            project_token_s=1e-9,
            read_bytes_per_s=1e9,
            codec="zstd",
            decode_hidden_token_s=decode_token_s,
            decode_kv_token_s=decode_token_s,
        )

    def take(self, mode: Mode, codec: str, *, decode_token_s: float) -> ModeChoice:
        save_profile(self._path, self.profile(decode_token_s))
        report = turn.take_turn(
            self._model,
            self._directory,
            self._prompt,
            new_tokens_max=1,
            sampling=Sampling(),
            store=turn.StoreOptions(
                chunk_tokens=SLICE_TOKENS, mode=mode, codec=codec, profile=self._path
            ),
        )
        assert report.choice is not None
        return report.choice


@pytest.fixture
def turns(
    model: Model,
    directory: Path,
    tmp_path: Path,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> Turns:
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    return Turns(model, directory, tmp_path / "profile.json", make_tokens(40, 1))


def test_a_turn_stores_nothing_where_decoding_takes_longer_than_computing(turns: Turns) -> None:
    slow_s = 1.0
    stored = {
        codec: str(turns.take(Mode.NAIVE_HYBRID, codec, decode_token_s=slow_s).schedule)
        for codec in (RAW, "zstd")
    }
    assert stored == {RAW: "3 KV", "zstd": "1 KV + 2 RE"}
    assert str(turns.take(Mode.AUTO, "zstd", decode_token_s=slow_s).schedule) == "3 RE"
    quick = turns.take(Mode.AUTO, "zstd", decode_token_s=1e-12)
    assert quick.schedule.count(Source.COMPUTE) == 0
    assert quick.note == ""
    assert "decoding int8" in turns.take(Mode.AUTO, "int8", decode_token_s=slow_s).note


def test_the_first_request_of_cake_expects_chunks_to_be_decoded(
    model: Model, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[LoadCost] = []

    class Noting(Restorer):
        def __init__(
            self,
            client: Client,
            state_format: StateFormat,
            model: Model,
            options: RestoreOptions,
        ) -> None:
            assert options.load is not None
            loads.append(options.load)
            super().__init__(client, state_format, model, options)

    monkeypatch.setattr(turn, "Restorer", Noting)
    slow_s = 0.5
    for codec in (RAW, "zstd", "int8"):
        assert turns.take(Mode.CAKE, codec, decode_token_s=slow_s).is_cake
    raw, slow, unknown = (load.chunk_s for load in loads)
    assert raw < 1e-3
    assert slow == pytest.approx(3 * SLICE_TOKENS * slow_s)
    whole = StateFormat.of_model(model, "any", chunk_tokens=SLICE_TOKENS)
    moved_share = whole.encoded("int8").moved_share
    assert moved_share < 1
    assert unknown == pytest.approx(raw * moved_share)


def test_reads_of_encoded_states_seemed_slower_by_what_the_codec_saves(
    model: Model, turns: Turns
) -> None:
    """The bytes that a read is heard to bring are those that it moves."""
    whole = StateFormat.of_model(model, "any", chunk_tokens=SLICE_TOKENS)
    raw = turns.profile(1e-12)
    for codec in (RAW, "int8"):
        encoded = whole.encoded(codec)
        profile = raw.moving(encoded.moved_share)
        rates = turn._layer_rates(profile, encoded)
        planned = profile.costs(profile.planned_tokens, codec=codec)
        assert rates.costs().io_kv_s == pytest.approx(planned.io_kv_s)
        # The device is as fast as it was measured.
        byte_count = 1 << 40
        rates.read(byte_count / raw.read_bytes_per_s, byte_count=byte_count)
        assert rates.costs().io_kv_s == pytest.approx(planned.io_kv_s, rel=1e-3)
