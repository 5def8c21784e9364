from dataclasses import replace

from benchmarks.vllm.server import series
from engine_adapters.vllm.testing.agreement import Reply
from engine_adapters.vllm.testing.conversations import TalkResult


def reply(text: str) -> Reply:
    return Reply(
        text=text,
        tokens=(text,),
        seconds=("?",),
        margins=(1.0,),
        prompt_tokens=100,
        cached_tokens=64,
    )


def test_figures_tell_a_difference_and_what_was_restored() -> None:
    replies = ([reply("a")],) * 2
    plain = TalkResult(before=replies, after=replies, duration_s=2.0)
    stored = replace(plain, duration_s=1.0, restored_tokens=128.0)
    figures = {one.key: one.value for one in series(plain, stored)}
    assert figures["server_tokens_equal"] == 1.0
    assert figures["server_restored_share"] == 128 / 200
    for other in (
        replace(stored, before=([reply("a")], [reply("b")])),
        replace(stored, after=([reply("b")], replies[0])),
    ):
        assert series(plain, other)[0].value == 0.0
