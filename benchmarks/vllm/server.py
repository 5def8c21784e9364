"""Conversations of many turns with vLLM's OpenAI server, which is restarted in the middle.

The same client talks to a server without a store, which is not restarted: every answer must be
the same, token by token.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from operator import add
from pathlib import Path
from random import Random

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.agreement import Reply, agreement
from benchmarks.vllm.engine_process import transfer_config
from benchmarks.vllm.lab import ARENA_BYTES, DEVICE_BYTES, DRAM_BYTES, MIB
from benchmarks.vllm.server_process import ServerProcess
from benchmarks.vllm.tiny_model import CONFIG, make_model

FIGURES = ("server_tokens_equal", "server_restored_share")
CLIENTS = 4
"""Conversations that are answered at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationScale:
    """How many conversations, the words of the document that each begins with, and of a question.

    ``turns_before`` and ``turns_after`` the restart.
    """

    conversations: int = 20
    document_words: int = 400
    question_words: int = 30
    answer_tokens: int = 16
    turns_before: int = 2
    turns_after: int = 2


class Conversations:
    """What was said in all conversations; one client each, ``CLIENTS`` at a time."""

    def __init__(self, generator: Random, scale: ConversationScale) -> None:
        self._scale = scale
        turns = scale.turns_before + scale.turns_after
        self._questions = [
            [
                _words(generator, scale.question_words + (scale.document_words if turn == 0 else 0))
                for turn in range(turns)
            ]
            for _ in range(scale.conversations)
        ]

    def take(
        self, server: ServerProcess, turns: range, said: Sequence[list[dict[str, str]]]
    ) -> list[list[Reply]]:
        """Takes turns of every conversation; ``said`` grows. The replies by conversation."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            running = [
                clients.submit(self._converse, server, turns, questions, messages)
                for questions, messages in zip(self._questions, said, strict=True)
            ]
            return [one.result() for one in running]

    def _converse(
        self,
        server: ServerProcess,
        turns: range,
        questions: Sequence[str],
        messages: list[dict[str, str]],
    ) -> list[Reply]:
        replies = []
        for turn in turns:
            messages.append({"role": "user", "content": questions[turn]})
            reply = server.chat(messages, max_tokens=self._scale.answer_tokens)
            messages.append({"role": "assistant", "content": reply.text})
            replies.append(reply)
        return replies


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRun:
    """The replies by conversation before and behind the restart, and how long the latter took.

    ``restored_tokens`` is what the connector of the second server has counted.
    """

    before: tuple[list[Reply], ...]
    after: tuple[list[Reply], ...]
    duration_s: float
    restored_tokens: float = 0.0

    @property
    def replies(self) -> tuple[list[Reply], ...]:
        """All of every conversation."""
        return tuple(map(add, self.before, self.after))

    @property
    def prompt_tokens(self) -> int:
        """Of all requests behind the restart."""
        return sum(reply.prompt_tokens for replies in self.after for reply in replies)


def talk(
    model: Path,
    log: Path,
    *,
    conversations: Conversations,
    scale: ConversationScale,
    socket: Path | None,
) -> ServerRun:
    """All turns with one server, or with two of which the second begins with an empty memory.

    Two with a ``socket``, at which a daemon listens; they restore in mode ``prefix``.
    """
    said: tuple[list[dict[str, str]], ...] = tuple([] for _ in range(scale.conversations))
    before = range(scale.turns_before)
    after = range(scale.turns_before, scale.turns_before + scale.turns_after)
    transfer = (
        None if socket is None else transfer_config(socket, mode="prefix", match_timeout_ms=5000)
    )
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(model, log, transfer=transfer))
        server.warm_up()
        first = conversations.take(server, before, said)
        if transfer is not None:
            stack.close()
            server = stack.enter_context(ServerProcess(model, log, transfer=transfer))
            server.warm_up()
        started_s = time.perf_counter()
        second = conversations.take(server, after, said)
        duration_s = time.perf_counter() - started_s
        restored = 0.0 if transfer is None else server.counter("vllm:kvstored_restored_tokens")
    return ServerRun(
        before=tuple(first),
        after=tuple(second),
        duration_s=duration_s,
        restored_tokens=restored,
    )


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


def series(plain: ServerRun, stored: ServerRun) -> tuple[Series, ...]:
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


def _words(generator: Random, count: int) -> str:
    return " ".join(f"w{generator.randrange(4, CONFIG['vocab_size'])}" for _ in range(count))
