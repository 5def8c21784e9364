"""How much room a prompt and its answer have."""

from pathlib import Path
from typing import Any

import pytest

from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from tests.engine_adapters.server.lab import TEXT, ServerLab

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
WINDOW = 128


@pytest.fixture
def learned(tmp_path: Path) -> ServerLab:
    """The model has learned its positions, so no conversation can be cut."""
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        layer_count=2,
        head_count=4,
        kv_head_count=4,
        position_count=WINDOW,
        family=Family.OPT,
    )
    write_random_model(tmp_path, shape, [TEXT])
    return ServerLab(Model.from_directory(tmp_path), tmp_path)


async def test_an_answer_broke_off_where_no_conversation_can_be_cut(learned: ServerLab) -> None:
    """Bug: what was said before took no room, so 500 came in the middle, at every try."""
    said: dict[str, Any] = {"conversation": "talk", "temperature": 0}
    async with learned.serve() as served:
        first = await served.ask(COMPLETIONS, prompt=[1, 2, 3], max_tokens=60, **said)
        assert first["usage"]["total_tokens"] == 63
        status, error = await served.refused(COMPLETIONS, prompt=[4], max_tokens=65, **said)
        assert (status, error["param"]) == (400, "prompt")
        assert error["code"] == "context_length_exceeded"
        assert "63 tokens of the conversation, 1 prompt tokens and 65 new ones" in error["message"]
        # As many as there is room for.
        last = await served.ask(CHATS, messages=[{"role": "user", "content": "why?"}], **said)
        assert last["usage"]["total_tokens"] == WINDOW
        status, error = await served.refused(COMPLETIONS, prompt=[4], max_tokens=1, **said)
        assert (status, error["code"]) == (400, "context_length_exceeded")


async def test_a_conversation_that_can_be_cut_may_exceed_the_window(lab: ServerLab) -> None:
    said: dict[str, Any] = {"conversation": "talk", "temperature": 0}
    async with lab.serve(cache_tokens=WINDOW) as served:
        for _ in range(2):
            answer = await served.ask(COMPLETIONS, prompt=[1, 2, 3], max_tokens=100, **said)
        assert answer["usage"]["total_tokens"] == 206
