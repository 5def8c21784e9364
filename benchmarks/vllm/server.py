"""Conversations of many turns with vLLM's OpenAI server, which is restarted in the middle.

The same client talks to a server without a store, which is not restarted: every answer must be
the same, token by token.
"""

from collections.abc import Callable
from contextlib import ExitStack

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.lab import ARENA_BYTES, DEVICE_BYTES, DRAM_BYTES, MIB
from engine_adapters.vllm.testing.agreement import agreement
from engine_adapters.vllm.testing.conversations import (
    Conversations,
    ConversationScale,
    TalkResult,
    talk,
)
from engine_adapters.vllm.testing.tiny_model import make_model

FIGURES = ("server_tokens_equal", "server_restored_share")


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """Both runs; raises BenchmarkError when nothing was restored."""
    scale = ConversationScale()
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 512 * MIB))
        model = make_model(folder / "model")
        conversations = Conversations(settings.random(), scale)
        say("conversations with a server without a store")
        plain = talk(
            model, folder / "plain.log", conversations=conversations, scale=scale, socket=None
        )
        options = DaemonOptions(
            folder=folder,
            device_bytes=DEVICE_BYTES,
            dram_bytes=DRAM_BYTES,
            arena_bytes_max=ARENA_BYTES,
            device_count=1,
        )
        stack.enter_context(DaemonProcess(options))
        say("conversations with a server that is restarted")
        stored = talk(
            model,
            folder / "stored.log",
            conversations=conversations,
            scale=scale,
            socket=options.socket,
        )
    if stored.restored_tokens == 0:
        raise BenchmarkError("the restarted server restored nothing")
    return series(plain, stored)


def series(plain: TalkResult, stored: TalkResult) -> tuple[Series, ...]:
    """The figures: whether all was said the same, and the share of prompts not computed."""
    agreed = agreement(plain.replies, stored.replies)
    return (
        Series(
            key="server_tokens_equal",
            unit="1 or 0",
            samples=(float(agreed.is_equal),),
            is_figure=True,
        ),
        Series(
            key="server_restored_share",
            unit="ratio",
            samples=(stored.restored_tokens / stored.prompt_tokens,),
            is_figure=True,
        ),
        Series(key="server_ties", unit="conversations", samples=(float(agreed.ties),)),
        Series(key="server_plain_s", unit="s", samples=(plain.duration_s,)),
        Series(key="server_stored_s", unit="s", samples=(stored.duration_s,)),
    )
