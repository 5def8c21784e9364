"""Conversations of many turns with vLLM's OpenAI server, which is restarted in the middle."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from operator import add
from pathlib import Path
from random import Random

from engine_adapters.vllm.testing.agreement import Reply
from engine_adapters.vllm.testing.engine_arguments import transfer_config
from engine_adapters.vllm.testing.server_process import ServerProcess
from engine_adapters.vllm.testing.tiny_model import CONFIG

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
            try:
                return [one.result() for one in running]
            finally:
                # Where one has failed, those that wait would fail as slowly.
                for one in running:
                    one.cancel()

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
class TalkResult:
    """The replies by conversation before and after the restart, and how long the latter took.

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
        """Of all requests after the restart."""
        return sum(reply.prompt_tokens for replies in self.after for reply in replies)


def talk(
    model: Path,
    log: Path,
    *,
    conversations: Conversations,
    scale: ConversationScale,
    socket: Path | None,
) -> TalkResult:
    """All turns with one server, or with two of which the second begins with an empty memory.

    Two with a ``socket``, at which a daemon listens; they restore in mode ``prefix``.
    """
    said: tuple[list[dict[str, str]], ...] = tuple([] for _ in range(scale.conversations))
    before = range(scale.turns_before)
    after = range(scale.turns_before, scale.turns_before + scale.turns_after)
    # No look-up is given up, however busy the machine is.
    transfer = (
        None if socket is None else transfer_config(socket, mode="prefix", match_timeout_ms=60_000)
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
    return TalkResult(
        before=tuple(first),
        after=tuple(second),
        duration_s=duration_s,
        restored_tokens=restored,
    )


def _words(generator: Random, count: int) -> str:
    return " ".join(f"w{generator.randrange(4, CONFIG['vocab_size'])}" for _ in range(count))
