"""Who watches a server, and how it ends."""

import asyncio
import threading
from typing import Any

import openai
import pytest

from engine_adapters.server.http.prompts import Prompt, Prompts
from engine_adapters.server.http.serving import drain
from tests.engine_adapters.server.lab import TEXT, USER, WAIT_S, Served, ServerLab, events_of
from tests.support.waiting import until

COMPLETIONS = "/v1/completions"


async def test_models_are_named(lab: ServerLab) -> None:
    async with lab.serve() as served:
        listed = await (await served.client.get("/v1/models")).json()
        assert [one["id"] for one in listed["data"]] == ["tiny"]
        assert await (await served.client.get("/v1/models/tiny")).json() == listed["data"][0]
        assert (await served.client.get("/v1/models/other")).status == 404


async def test_what_happened_is_counted(lab: ServerLab) -> None:
    async with lab.serve() as served:
        await served.ask(COMPLETIONS, prompt=[1, 2, 3], max_tokens=2)
        await served.refused(COMPLETIONS, prompt="")
        text = await (await served.client.get("/metrics")).text()
        for line in (
            'kvstored_server_requests_total{path="/v1/completions",status="200"} 1.0',
            'kvstored_server_requests_total{path="/v1/completions",status="400"} 1.0',
            'kvstored_server_tokens_total{kind="prompt"} 3.0',
            'kvstored_server_tokens_total{kind="new"} 2.0',
            "kvstored_server_first_token_seconds_count 1.0",
            "kvstored_server_requests_in_flight 0.0",
        ):
            assert line in text.splitlines()


async def begin(served: Served, **fields: Any) -> Any:
    return await served.post(COMPLETIONS, prompt=TEXT, stream=True, seed=1, **fields)


async def test_what_runs_ends_before_the_server_does(lab: ServerLab) -> None:
    async with lab.serve() as served:
        running = await begin(served, max_tokens=150)
        draining = asyncio.create_task(drain(served.service, 30))
        await asyncio.sleep(0)
        status, error = await served.refused(COMPLETIONS, prompt=TEXT)
        assert (status, error["type"]) == (503, "server_error")
        assert (await served.client.get("/healthz")).status == 503
        events = await events_of(running)
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        await draining
        assert served.service.admission.count == 0


async def test_what_does_not_end_in_time_hears_of_it(lab: ServerLab) -> None:
    async with lab.serve() as served:
        async with served.held():
            running = await begin(served, max_tokens=900)
            await drain(served.service, 0.01)
            await asyncio.get_running_loop().run_in_executor(None, served.service.engine.stop)
        last = (await running.text()).rstrip().rpartition("\n\n")[2]
        assert "the server stops before the answer is complete" in last
        await served.idle()
        served.check_engine()


async def test_a_request_that_came_to_the_engine_after_its_end_held_the_server_up(
    lab: ServerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: nobody read what it asked of the engine, so after SIGTERM the server never ended."""
    is_stopped, of_prompt = threading.Event(), Prompts.of_prompt

    def prepare_late(self: Prompts, *arguments: Any) -> Prompt:
        assert is_stopped.wait(WAIT_S)
        return of_prompt(self, *arguments)

    monkeypatch.setattr(Prompts, "of_prompt", prepare_late)
    async with lab.serve() as served:
        late = asyncio.create_task(served.refused(COMPLETIONS, prompt=TEXT))
        await until(lambda: served.service.admission.count == 1)
        await asyncio.get_running_loop().run_in_executor(None, served.service.engine.stop)
        is_stopped.set()
        async with asyncio.timeout(WAIT_S):
            status, error = await late
            assert (status, error["type"]) == (503, "server_error")
            await served.service.finish()


async def test_an_engine_that_fails_is_not_healthy(
    lab: ServerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab.serve() as served:

        def fail(*_: object, **__: object) -> None:
            raise OSError("no memory")

        monkeypatch.setattr(served.service.engine._engine, "step", fail)
        for _ in range(2):
            status, error = await served.refused(COMPLETIONS, prompt=TEXT)
            assert (status, error["type"]) == (500, "server_error")
            assert "no memory" not in error["message"]
        assert (await served.client.get("/healthz")).status == 503
        await served.idle()


async def test_the_openai_client_talks_to_it(lab: ServerLab) -> None:
    async with lab.serve(keys={"one": "a"}) as served:
        url = str(served.client.make_url("/v1"))
        async with openai.AsyncOpenAI(base_url=url, api_key="one", max_retries=0) as client:
            asked: Any = {"model": "tiny", "messages": [USER], "seed": 3, "max_tokens": 9}
            whole = await client.chat.completions.create(**asked)
            said = whole.choices[0].message.content
            stream = await client.chat.completions.create(**asked, stream=True)
            pieces = [one.choices[0].delta.content or "" async for one in stream]
            assert "".join(pieces) == said
            assert [one.id async for one in await client.models.list()] == ["tiny"]
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(**asked, logprobs=True)
            assert caught.value.param == "logprobs"
        async with openai.AsyncOpenAI(base_url=url, api_key="no", max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
