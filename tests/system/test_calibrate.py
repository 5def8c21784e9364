"""``calibrate`` measures through a real daemon, and turns are planned by its profile."""

import json
import sys
from pathlib import Path

import pytest

from engine_adapters.restore import Mode, load_profile
from engine_adapters.runner import __main__ as runner
from engine_adapters.runner.calibrate.profile_place import default_profile_path
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from kvstored_client import Client
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S

TEXT = "An extent is where one chunk lies; a slice is the smallest unit that is read. " * 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        layer_count=4,
        head_count=4,
        kv_head_count=4,
        position_count=1500,
    )
    write_random_model(path, shape, [TEXT])
    return path


class CommandLine:
    """Calls the runner as a shell does, with a cache directory of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cache: Path
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["runner", *map(str, arguments)])
        status = runner.main()
        output = self._capsys.readouterr()
        return status, output.out, output.err


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> CommandLine:
    return CommandLine(monkeypatch, capsys, tmp_path / "cache")


def test_a_profile_is_measured_and_used(
    model: Path, daemon: DaemonProcess, call: CommandLine, tmp_path: Path
) -> None:
    socket = ("--socket", daemon.socket_path)
    turn = ("--model", model, "--prompt", TEXT, "--max-new-tokens", 3, "--json", *socket)
    status, output, error = call("calibrate", model, "--quick", "--json", *socket)
    assert status == 0, error
    report = json.loads(output)
    assert report["reads_are_cold"]
    profile = load_profile(Path(report["profile"]))
    assert profile.hidden_bytes == 64 * 4
    assert profile.kv_bytes == 2 * 64 * 4
    assert report["load_us_per_token"] == profile.costs(1024).load_s * 1e6 / 1024
    assert Path(report["profile"]).is_relative_to(tmp_path / "cache")
    with Client(daemon.socket_path) as client:
        assert client.admin.stats().chunk_count == 0
    schedules = {}
    for mode in (Mode.HCACHE, Mode.NAIVE_HYBRID, Mode.AUTO):
        status, output, error = call(*turn, "--mode", mode)
        assert status == 0, error
        assert error == ""
        schedules[mode] = json.loads(output)["schedule"]
    assert schedules == {mode: report[mode] for mode in schedules}


def test_auto_without_a_profile_says_what_it_assumes(
    model: Path, shared_daemon: DaemonProcess, call: CommandLine
) -> None:
    # So small a model computes in less time than the store may take to answer.
    waiting = ("--least-wait", PATIENCE_S)
    turn = ("--model", model, "--prompt", TEXT, "--max-new-tokens", 3, "--json", *waiting)
    outputs = []
    for _ in range(2):
        status, output, error = call(*turn, "--socket", shared_daemon.socket_path)
        assert status == 0
        assert "mode auto knows no costs of this model and takes hidden" in error
        assert error.count("\n") == 1
        outputs.append(json.loads(output))
    assert outputs[0]["schedule"] == outputs[1]["schedule"] == "4 H"
    assert outputs[1]["restored_tokens"] > outputs[0]["restored_tokens"] == 0
    assert outputs[0]["generated_ids"] == outputs[1]["generated_ids"]


def test_recompute_uses_no_store(
    model: Path, shared_daemon: DaemonProcess, call: CommandLine
) -> None:
    turn = ("--model", model, "--prompt", TEXT, "--max-new-tokens", 3, "--json")
    for _ in range(2):
        status, output, _ = call(
            *turn, "--socket", shared_daemon.socket_path, "--mode", "recompute"
        )
        assert status == 0
        assert json.loads(output)["restored_tokens"] == 0
        assert json.loads(output)["schedule"] == "4 RE"


def test_a_mode_that_needs_a_profile_is_refused_in_one_sentence(
    model: Path, tmp_path: Path, call: CommandLine
) -> None:
    turn = ("--model", model, "--prompt", "a", "--socket", tmp_path / "nobody")
    status, _, error = call(*turn, "--mode", "hcache")
    assert status == 2
    assert "mode hcache balances measured costs" in error
    assert error.count("\n") == 1
    status, _, error = call(*turn, "--profile", tmp_path / "absent.json")
    assert status == 2
    assert "absent.json" in error


def test_an_old_profile_does_not_disturb_modes_that_need_none(
    model: Path, tmp_path: Path, call: CommandLine
) -> None:
    """Bug: after an update every turn of every mode was refused until the next ``calibrate``."""
    loaded = Model.from_directory(model)
    path = default_profile_path(loaded, model_fingerprint(model, loaded.config))
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    turn = ("--model", model, "--prompt", "a", "--socket", tmp_path / "nobody")
    status, _, error = call(*turn, "--mode", "hcache")
    assert status == 2
    assert "calibrate again" in error
    status, _, error = call(*turn, "--mode", "kv")
    assert status == 0, error


def test_calibration_without_a_daemon_is_one_sentence(
    model: Path, tmp_path: Path, call: CommandLine
) -> None:
    status, output, error = call("calibrate", model, "--quick", "--socket", tmp_path / "nobody")
    assert status == 2
    assert output == ""
    assert error.startswith("runner: the daemon is absent")
    assert error.count("\n") == 1
