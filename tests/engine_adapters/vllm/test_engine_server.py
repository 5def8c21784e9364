"""Twenty conversations with vLLM's OpenAI server, restarted in the middle."""

import random
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.agreement import agreement
from engine_adapters.vllm.testing.conversations import Conversations, ConversationScale, talk
from tests.support.daemon import DaemonProcess

pytestmark = pytest.mark.timeout(400)
"""Three servers start in one test."""

SCALE = ConversationScale(
    conversations=20,
    document_words=150,
    question_words=20,
    answer_tokens=8,
    turns_before=2,
    turns_after=1,
)


def test_restarted_server_restores_what_the_first_one_saved(
    model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    conversations = Conversations(random.Random(5), SCALE)
    plain = talk(
        model, tmp_path / "plain.log", conversations=conversations, scale=SCALE, socket=None
    )
    stored = talk(
        model,
        tmp_path / "stored.log",
        conversations=conversations,
        scale=SCALE,
        socket=shared_daemon.socket_path,
    )
    agreed = agreement(plain.replies, stored.replies)
    assert agreed.is_equal
    # One of the 480 tokens is 1.4e-6 ahead of the next.
    assert agreed.ties <= 1
    # Two chunks at least of every conversation's first two turns.
    assert stored.restored_tokens >= SCALE.conversations * 2 * 64
    assert sum(reply.cached_tokens for replies in stored.after for reply in replies) > 0
