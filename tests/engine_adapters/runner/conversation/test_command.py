"""Turns of a conversation by the command line: the name and the new turn, nothing else."""

import json
import time
from pathlib import Path

import pytest

from engine_adapters.restore import CostProfile, Preload, save_profile
from engine_adapters.runner import turn
from engine_adapters.runner.calibrate.profile_place import default_profile_path
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import shape_of
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.test_main import TEXT, CliClient, call, random_model

__all__ = ["random_model"]


@pytest.mark.parametrize("preload", list(Preload))
def test_turns_by_name_are_those_of_the_whole_conversation(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    preload: Preload,
) -> None:
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    tokens = tmp_path / "tokens.json"
    common = ["--model", random_model, "--max-new-tokens", 9, "--json", "--mode", "kv"]
    by_name = [*common, "--conversation", "a talk", "--preload", preload, "--least-wait", 60]
    whole = [*common, "--no-store", "--token-output", tokens]
    said = 0
    for number, prompt in enumerate([TEXT, " And then?", " Why?"]):
        so_far = ["--token-file", tokens] if number else []
        assert call(monkeypatch, *whole, *so_far, "--prompt", prompt) == 0
        expected = json.loads(capsys.readouterr().out)
        assert call(monkeypatch, *by_name, "--prompt", prompt) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["generated_ids"] == expected["generated_ids"]
        assert report["prompt_tokens"] == expected["prompt_tokens"]
        # All but the last token, which was only sampled, with the tail of the last chunk.
        assert report["restored_tokens"] == max(0, said - 1)
        assert report["cut_tokens"] == 0
        # Without a profile nothing says that layers are better.
        assert report["is_by_layers"] == (preload is Preload.LAYERS and number > 0)
        said = report["prompt_tokens"] + 9


@pytest.mark.parametrize(("load_share", "is_by_layers"), [(0.3, True), (1e-6, False)])
def test_a_profile_decides_how_the_window_of_a_conversation_comes(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    load_share: float,
    is_by_layers: bool,
) -> None:
    """Also in a mode that stores the same whatever that costs."""
    model = Model.from_directory(random_model)
    fingerprint = model_fingerprint(random_model, model.config)
    shape = shape_of(model)
    profile = CostProfile(
        model=fingerprint,
        machine="here",
        measured_at_s=time.time(),
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        compute_token_s=1.0,
        project_token_s=1e-9,
        read_bytes_per_s=shape.kv_bytes / load_share,
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = default_profile_path(model, fingerprint)
    path.parent.mkdir(parents=True)
    save_profile(path, profile)
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    common = ["--model", random_model, "--max-new-tokens", 4, "--json", "--mode", "kv"]
    by_name = [*common, "--conversation", "a talk", "--least-wait", 60]
    assert call(monkeypatch, *by_name, "--prompt", TEXT) == 0
    capsys.readouterr()
    assert call(monkeypatch, *by_name, "--prompt", TEXT) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_by_layers"] == is_by_layers
    assert report["restored_tokens"] > 0


@pytest.mark.parametrize("options", [["--no-store"], ["--mode", "recompute"]])
def test_a_conversation_needs_a_store(
    random_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    arguments = ["--model", random_model, "--prompt", "abc", "--conversation", "a talk"]
    assert call(monkeypatch, *arguments, *options) == 2
    assert "needs a store, and a mode that stores states" in capsys.readouterr().err


def test_without_an_answer_of_the_store_there_is_no_turn(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty history in its place would give a wrong answer."""
    CliClient.store_of_test = make_store()
    CliClient.store_of_test.kill()
    monkeypatch.setattr(turn, "Client", CliClient)
    arguments = ["--model", random_model, "--prompt", "abc", "--mode", "kv"]
    assert call(monkeypatch, *arguments, "--conversation", "a talk") == 2
    assert "the store did not answer" in capsys.readouterr().err
