"""Documents that are linked by the command line."""

import json
from pathlib import Path

import pytest

from engine_adapters.runner import turn
from engine_adapters.runner.link_command import SPLITS
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.engine_adapters.runner.test_main import TEXT, CliClient, call, random_model

__all__ = ["random_model"]

QUESTION = " Question?"


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    paths = [tmp_path / "first.txt", tmp_path / "second.txt"]
    paths[0].write_text(TEXT, encoding="utf-8")
    paths[1].write_text("\n\n".join(reversed(TEXT.split())) + ".", encoding="utf-8")
    return paths


def linked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: Path,
    *arguments: object,
) -> dict[str, object]:
    common = ["link", "--model", model, "--max-new-tokens", 9, "--json", "--prompt", QUESTION]
    # On a busy machine a store in memory may seem slow.
    waits = ["--least-wait", 60, "--chunk-tokens", 16]
    assert call(monkeypatch, *common, *waits, *arguments) == 0
    check_released(CliClient.store_of_test)
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    return report


def test_documents_in_another_order_have_the_same_entries(
    random_model: Path,
    documents: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = documents
    one = linked(monkeypatch, capsys, random_model, "--document", first, "--document", second)
    other = linked(monkeypatch, capsys, random_model, "--document", second, "--document", first)
    assert isinstance(one["entries"], list)
    assert other["entries"] == one["entries"][::-1]
    assert other["restored_tokens"] == one["restored_tokens"] != 0
    by_id = [option for name in one["entries"] for option in ("--entry", name)]
    again = linked(monkeypatch, capsys, random_model, *by_id)
    assert again["generated_ids"] == one["generated_ids"]
    assert again["prompt_tokens"] == one["prompt_tokens"]


@pytest.mark.parametrize("split", SPLITS)
def test_full_answers_as_a_plain_turn(
    random_model: Path,
    documents: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    split: str,
) -> None:
    # Pieces that are tokenized apart may have other tokens than the text, but not these.
    full = linked(
        monkeypatch,
        capsys,
        random_model,
        *("--document", documents[0], "--split", split, "--split-tokens", 7),
        *("--method", "full", "--mode", "hidden"),
    )
    prompt = ["--prompt-file", documents[0], "--prompt", QUESTION, "--max-new-tokens", 9, "--json"]
    assert call(monkeypatch, "--model", random_model, "--no-store", *prompt) == 0
    plain = json.loads(capsys.readouterr().out)
    assert full["restored_tokens"] == 0
    if full["prompt_tokens"] == plain["prompt_tokens"]:
        assert full["generated_ids"] == plain["generated_ids"]
    else:
        assert split not in {"whole", "fixed"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--entry", "cc-none"], "no context cache 'cc-none'"),
        (["--method", "best"], "naive, full, attnlink-k"),
        (["--document", "nowhere.txt"], "cannot read a document"),
    ],
)
def test_what_cannot_be_linked_is_said_in_one_sentence(
    random_model: Path,
    documents: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert call(monkeypatch, "link", "--model", random_model, "--prompt", "a", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_cannot_link_ended_with_a_traceback(
    documents: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: opening the runner raises that error, and only what follows was looked after."""
    shape = RandomModelShape(
        hidden_size=64,
        intermediate_size=96,
        layer_count=2,
        head_count=4,
        kv_head_count=4,
        position_count=2048,
        family=Family.OPT,
    )
    write_random_model(tmp_path / "opt", shape, [TEXT])
    assert call(monkeypatch, "link", "--model", tmp_path / "opt", "--prompt", "a") == 2
    error = capsys.readouterr().err
    assert error.startswith("runner: this model cannot link entries")
    assert error.count("\n") == 1


def test_a_time_to_live_that_no_entry_can_have_was_found_out_after_computing(
    random_model: Path,
    documents: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bug: it ended with an OverflowError, and with states that no entry has."""
    arguments = ["link", "--model", random_model, "--prompt", "a", "--document", documents[0]]
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, *arguments, "--ttl", 5_000_000_000)
    assert caught.value.code == 2
    assert "argument --ttl: '5000000000' is more than 31536000" in capsys.readouterr().err
    assert not CliClient.store_of_test.requests
