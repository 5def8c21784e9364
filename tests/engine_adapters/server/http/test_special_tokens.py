"""A checkpoint whose tokenizer begins and ends texts with tokens, as its template does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.sampling import Sampler
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import train_tokenizer
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE, Tokenizer
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.server.lab import TEXT, USER, ServerLab, events_of, text_of

COMPLETIONS, CHATS, CACHES = "/v1/completions", "/v1/chat/completions", "/v1/context_caches"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(params=["template", "none"])
def directory(request: Any, tmp_path: Path, model_directory: Path) -> Path:
    """The checkpoint of other tests with such a tokenizer, with a template and without one."""
    for path in model_directory.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for name in (TOKENIZER_FILE, "config.json"):
        (tmp_path / name).unlink()
    trained = train_tokenizer([TEXT], vocab_size=290)
    trained.add_special_tokens(["<s>", "</s>"])
    begin, end = trained.token_to_id("<s>"), trained.token_to_id("</s>")
    trained.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", begin), ("</s>", end)]
    )
    trained.save(str(tmp_path / TOKENIZER_FILE))
    config = json.loads((model_directory / "config.json").read_text())
    config |= {"bos_token_id": begin, "eos_token_id": end}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if request.param == "template":
        fields = {"chat_template": TEMPLATE, "bos_token": "<s>", "eos_token": "</s>"}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(fields))
    return tmp_path


@pytest.fixture
def lab(directory: Path) -> ServerLab:
    return ServerLab(Model.from_directory(directory), directory)


@pytest.fixture
def tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_directory(directory)


def opening_of(directory: Path, turn: str) -> str:
    """The text of a chat of one turn up to its answer, as its special tokens are spelled."""
    if (directory / "tokenizer_config.json").exists():
        return f"<s>[user] {turn}\n[assistant] "
    return f"<s>user: {turn}\nassistant: "


def answered(model: Model, prompt: list[int]) -> list[int]:
    engine = Engine(model, cache_tokens=500)
    engine.add_request(prompt, new_tokens_max=8)
    (completion,) = engine.run()
    return list(completion.generated_ids)


async def test_a_prompt_begins_once_and_does_not_end(
    lab: ServerLab, tokenizer: Tokenizer, directory: Path
) -> None:
    begin = tokenizer.encode("")
    assert len(begin) == 1
    prompts = {
        COMPLETIONS: [*begin, *tokenizer.encode(TEXT, is_continuation=True)],
        CHATS: tokenizer.encode(opening_of(directory, USER["content"]), is_continuation=True),
    }
    assert prompts[CHATS].count(begin[0]) == 1
    async with lab.serve() as served:
        for path, fields in ((COMPLETIONS, {"prompt": TEXT}), (CHATS, {"messages": [USER]})):
            answer = await served.ask(path, **fields, **ASKED)
            assert answer["usage"]["prompt_tokens"] == len(prompts[path])
            (choice,) = answer["choices"]
            said = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
            assert said == tokenizer.decode(answered(lab.model, prompts[path]))


async def test_a_cache_has_neither_and_its_prompt_begins_once(
    lab: ServerLab, tokenizer: Tokenizer, directory: Path
) -> None:
    async with lab.serve() as served:
        made = await served.ask(CACHES, text=TEXT)
        assert made["tokens"] == len(tokenizer.encode(TEXT, is_continuation=True))
        content = [{"type": "context_cache", "id": made["id"]}, {"type": "text", "text": "why?"}]
        answer = await served.ask(CHATS, messages=[{"role": "user", "content": content}], **ASKED)
    before, after = opening_of(directory, "|").split("|")
    parts: list[PromptPart] = [
        tokenizer.encode(before, is_continuation=True),
        EntryName(made["id"]),
        tokenizer.encode("why?" + after, is_continuation=True),
    ]
    with (
        MemoryClient(lab.store) as client,
        LinkRunner(lab.model, client, lab.state_format, cache_tokens=400) as runner,
    ):
        completion = runner.link(LinkRequest(parts=parts, new_tokens_max=8))
    assert answer["usage"]["prompt_tokens"] == completion.prompt_tokens
    said = answer["choices"][0]["message"]["content"]
    assert said == tokenizer.decode(completion.generated_ids)


@pytest.mark.parametrize("ends", [True, False], ids=["ended by itself", "cut at its length"])
@pytest.mark.parametrize("directory", ["template"], indirect=True)
async def test_an_answer_ends_once_before_the_next_turn(
    lab: ServerLab, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """Whether or not the model wrote the token that the template writes."""
    (end,) = lab.model.config.stop_token_ids
    script = [*tokenizer.encode("yes", is_continuation=True), end]
    if not ends:
        del script[-1]
    say(monkeypatch, iter([*script, *script]))
    asked: dict[str, Any] = {"conversation": "talk", "max_tokens": len(script), "messages": [USER]}
    async with lab.serve() as served:
        first = await served.ask(CHATS, **asked)
        assert first["choices"][0]["message"]["content"] == "yes"
        assert first["choices"][0]["finish_reason"] == ("stop" if ends else "length")
        second = await served.ask(CHATS, **asked)
        (namespace,) = served.service._namespaces.values()
        (name,) = namespace.conversations.conversations.names()
        told = list(namespace.conversations.conversations.open(name).token_ids)
    turn = f"[user] {USER['content']}\n[assistant] yes"
    last = "</s>" if ends else ""
    expected = tokenizer.encode(f"<s>{turn}</s>\n{turn}{last}", is_continuation=True)
    assert told == expected
    assert second["usage"]["total_tokens"] == len(expected)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("stop", "said"),
    [("é!", "ab "), ("😀 e", "ab é! "), ("! 😀", "ab é"), ("never", "ab é! 😀 end")],
)
@pytest.mark.parametrize("directory", ["none"], indirect=True)
async def test_a_stop_string_of_characters_of_several_tokens(
    lab: ServerLab,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    is_streamed: bool,
    stop: str,
    said: str,
) -> None:
    """Each byte of these characters is a token of its own."""
    script = tokenizer.encode("ab é! 😀 end", is_continuation=True)
    assert len(script) >= len("ab é! 😀 end".encode()) - 2
    say(monkeypatch, iter(script))
    asked: dict[str, Any] = {"prompt": TEXT, "max_tokens": len(script), "stop": [stop]}
    async with lab.serve() as served:
        if is_streamed:
            events = await events_of(await served.post(COMPLETIONS, stream=True, **asked))
            assert text_of(events) == said
            assert "\ufffd" not in said
            reason = events[-1]["choices"][0]["finish_reason"]
        else:
            answer = await served.ask(COMPLETIONS, **asked)
            assert answer["choices"][0]["text"] == said
            reason = answer["choices"][0]["finish_reason"]
    assert reason == ("length" if stop == "never" else "stop")


def say(monkeypatch: pytest.MonkeyPatch, script: Iterator[int]) -> None:
    """Has the model say these tokens, whatever it thinks."""
    monkeypatch.setattr(Sampler, "choose", lambda _sampler, _logits: next(script))
