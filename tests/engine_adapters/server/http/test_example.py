"""The program of the documentation, against a server."""

import asyncio
import sys

import pytest

from examples.ask_server import main
from tests.engine_adapters.server.lab import ServerLab


async def test_the_example_says_what_came_from_the_store(
    lab: ServerLab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lab.serve() as served:
        url = str(served.client.make_url("/")).rstrip("/")
        monkeypatch.setattr(sys, "argv", ["ask_server.py", url])
        await asyncio.to_thread(main)
    cache, restored, *turns = capsys.readouterr().out.splitlines()
    assert cache.startswith("context cache cc-")
    assert int(restored.split()[3]) > 0
    assert [turn.partition("? ")[0] for turn in turns] == ["What is a chunk", "And on a device"]
