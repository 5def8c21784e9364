"""Answers to prompts and chats."""

import asyncio
from typing import Any

import pytest

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.engine_adapters.server.lab import TEXT, USER, ServerLab, events_of, text_of

SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "seed": 11}


@pytest.mark.parametrize("sampling", [{"temperature": 0}, SAMPLED], ids=["greedy", "sampled"])
async def test_a_server_answers_as_the_runner_does(lab: ServerLab, sampling: Any) -> None:
    tokenizer = Tokenizer.from_directory(lab.directory)
    prompt = tokenizer.encode(TEXT)
    engine = Engine(lab.model, cache_tokens=200)
    engine.add_request(prompt, new_tokens_max=20, sampling=Sampling(**sampling))
    (completion,) = engine.run()
    expected = tokenizer.decode(completion.generated_ids)
    async with lab.serve() as served:
        for given in (TEXT, prompt):
            answer = await served.ask("/v1/completions", prompt=given, max_tokens=20, **sampling)
            assert answer["choices"][0]["text"] == expected
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["usage"]["prompt_tokens"] == len(prompt)
            assert answer["usage"]["completion_tokens"] == 20
            (namespace,) = served.service._namespaces.values()
            await asyncio.to_thread(namespace.saver.finish)
        # The first answer has left the states of the prompt.
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 8


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": TEXT}),
        ("/v1/chat/completions", {"messages": [USER]}),
    ],
)
async def test_a_stream_says_the_same(lab: ServerLab, path: str, asked: Any) -> None:
    async with lab.serve() as served:
        whole = await served.ask(path, max_tokens=20, **asked, **SAMPLED)
        choice = whole["choices"][0]
        said = choice["text"] if "text" in choice else choice["message"]["content"]
        options = {"include_usage": True}
        response = await served.post(
            path, max_tokens=20, stream=True, stream_options=options, **asked, **SAMPLED
        )
        events = await events_of(response)
        assert text_of(events) == said
        assert len(events) > 5
        assert {one["id"] for one in events} == {events[0]["id"]}
        assert [one["choices"][0]["finish_reason"] for one in events[-2:-1]] == ["length"]
        assert events[-1]["usage"]["completion_tokens"] == 20


async def test_without_a_seed_answers_differ(lab: ServerLab) -> None:
    async with lab.serve() as served:
        asked: dict[str, Any] = {"prompt": TEXT, "max_tokens": 20, "temperature": 1.5}
        answers = [await served.ask("/v1/completions", **asked) for _ in range(2)]
        assert answers[0]["choices"][0]["text"] != answers[1]["choices"][0]["text"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_stop_string_over_tokens_ends_an_answer(lab: ServerLab, is_streamed: bool) -> None:
    async with lab.serve() as served:
        asked: dict[str, Any] = {"prompt": TEXT, "temperature": 0, "max_tokens": 30}
        text = (await served.ask("/v1/completions", **asked))["choices"][0]["text"]
        stop = text[5:9]
        asked |= {"stop": ["never there", stop]}
        if is_streamed:
            events = await events_of(await served.post("/v1/completions", stream=True, **asked))
            said, reason = text_of(events), events[-1]["choices"][0]["finish_reason"]
        else:
            answer = await served.ask("/v1/completions", **asked)
            said, reason = (answer["choices"][0][name] for name in ("text", "finish_reason"))
            assert answer["usage"]["completion_tokens"] < 30
        assert said == text.partition(stop)[0]
        assert reason == "stop"


async def test_without_a_limit_an_answer_has_the_room_there_is(lab: ServerLab) -> None:
    async with lab.serve(cache_tokens=80) as served:
        answer = await served.ask("/v1/chat/completions", messages=[USER])
        assert answer["usage"]["total_tokens"] == 80


async def test_requests_run_together(lab: ServerLab) -> None:
    """One asked later and shorter ends first."""
    async with lab.serve() as served, served.held():
        long = await served.post("/v1/completions", prompt=TEXT, max_tokens=900, stream=True)
        await served.ask("/v1/completions", prompt=TEXT, max_tokens=2)
        assert served.service.admission.count == 1
        long.close()
