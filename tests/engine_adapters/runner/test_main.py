import json
import sys
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.runner import __main__ as cli
from engine_adapters.runner import turn
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.tokenizer import Tokenizer
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.memory import make_store

TEXT = "An extent is where one chunk lies; a slice is the smallest unit that is read. " * 12


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random-model")
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        layer_count=2,
        head_count=4,
        kv_head_count=2,
    )
    write_random_model(path, shape, [TEXT])
    return path


class CliClient(MemoryClient):
    """A client of the test's store behind the constructor of the real client."""

    store_of_test: MemoryStore

    def __init__(self, socket: str | None, **options: Any) -> None:
        super().__init__(self.store_of_test, **options)

    def close(self) -> None:
        assert self.store.regions_in_use == 0
        super().close()


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["runner", *map(str, arguments)])
    return cli.main()


def test_three_turns_as_a_demonstration_takes_them(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    document = tmp_path / "document.txt"
    document.write_text(TEXT, encoding="utf-8")
    tokens = tmp_path / "tokens.json"
    common = ["--model", random_model, "--max-new-tokens", 30, "--json", "--least-wait", 60]
    first = ["--prompt-file", document, "--prompt", " Question?"]
    later = ["--token-file", tokens, "--prompt", " And then?"]
    restored = []
    for prompt in (first, later, later):
        assert call(monkeypatch, *common, *prompt, "--no-store") == 0
        plain = json.loads(capsys.readouterr().out)
        assert call(monkeypatch, *common, *prompt, "--token-output", tokens) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["generated_ids"] == plain["generated_ids"]
        assert plain["restored_tokens"] == plain["saved_tokens"] == 0
        assert plain["counters"] == {}
        assert report["counters"] == {"connects": 1}
        conversation = json.loads(tokens.read_text())
        assert conversation[-30:] == report["generated_ids"]
        assert len(conversation) == report["prompt_tokens"] + 30
        restored.append(report["restored_tokens"])
    assert restored[0] == 0
    assert restored[1] % 64 == 0
    assert restored[1] > 0
    assert restored[2] >= restored[1]


def test_no_save_leaves_the_store_alone(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CliClient.store_of_test = make_store()
    monkeypatch.setattr(turn, "Client", CliClient)
    arguments = ["--model", random_model, "--prompt", TEXT, "--max-new-tokens", 2, "--no-save"]
    assert call(monkeypatch, *arguments) == 0
    assert not CliClient.store_of_test.chunks
    assert "restored_tokens: 0\n" in capsys.readouterr().out


def test_sampling_options_reach_the_sampler(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for seed in (1, 1, 2):
        arguments = ["--model", random_model, "--prompt", "abc", "--no-store", "--json"]
        options = ["--temperature", 1.0, "--top-p", 0.9, "--seed", seed, "--threads", 1]
        assert call(monkeypatch, *arguments, *options, "--dtype", "bfloat16") == 0
        outputs.append(json.loads(capsys.readouterr().out)["generated_ids"])
    assert outputs[0] == outputs[1] != outputs[2]


def test_new_text_behind_tokens_is_a_continuation(random_model: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text("[1, 2]")
    options = cli.make_parser().parse_args(
        ["--model", str(random_model), "--token-file", str(tokens), "--prompt", "ab"]
    )
    tokenizer = Tokenizer.from_directory(random_model)
    assert cli.read_prompt(options, tokenizer) == [1, 2, *tokenizer.encode("ab")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "absent", "--prompt", "a"], "absent holds no tokenizer.json"),
        (["--prompt-file", "absent.txt"], "cannot read the prompt"),
        (["--token-file", "tokens.json"], "must hold a JSON list of token ids"),
        ([], "at least one prompt token"),
        (["--prompt", "a", "--temperature", "-1"], "temperature must be"),
    ],
)
def test_refuses_with_one_sentence(
    arguments: list[str],
    message: str,
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokens.json").write_text('["a"]')
    assert call(monkeypatch, "--model", random_model, "--no-store", *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("runner: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_step_that_fails_ends_the_turn_with_one_sentence(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forward = Model.forward

    def compute_or_fail(self: Model, token_ids: list[int], *arguments: Any, **options: Any) -> Any:
        if any(token_ids):
            raise RuntimeError("the device is out of memory")
        # Warming up computes tokens 0.
        return forward(self, token_ids, *arguments, **options)

    monkeypatch.setattr(Model, "forward", compute_or_fail)
    assert call(monkeypatch, "--model", random_model, "--prompt", TEXT, "--no-store") == 2
    error = capsys.readouterr().err
    assert error == "runner: request 0 ended early: the device is out of memory\n"
