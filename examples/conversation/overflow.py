"""A conversation of the small trained model that outgrows its window and goes on.

Each turn has a connection of its own, names the conversation and gives what the user says now. All
before comes from the store: token ids, cuts and states. When it is over, its tokens are compared
with those of one cache that never left the process, cut at the same places.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from benchmarks.kit.daemon_process import DaemonProcess, check_available
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.quality.bare_window import logits_of
from benchmarks.quality.model import DTYPE, trained_model
from benchmarks.quality.talk import Talker
from benchmarks.quality.way import Way
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampler, Sampling
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.runner.states.state_format import StateFormat
from examples.conversation.script import KILLED_BEFORE, SAYINGS, Saying
from kvstored_client import Client

NAME = "outgrowing"
ARENA_BYTES = 64 * 1024 * 1024
TEMPERATURE = 0.5
TOP_P = 0.9
"""Without a choice, small models repeat themselves."""

OpenClient = Callable[[int], AbstractContextManager[Client]]
"""A client for the turn of this number, counted from 1."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldTurn:
    """What was said in a turn, in tokens where not in text.

    ``history_tokens`` are all that were said before, dropped ones included; ``dropped_tokens`` are
    those that this turn dropped from the window. ``tokens_equal`` says whether the answer is that
    of a cache which kept everything.
    """

    number: int
    text: str
    answer: str
    expected: str
    history_tokens: int
    dropped_tokens: int
    restored_tokens: int
    computed_tokens: int
    tokens_equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """All turns of the conversation, and how many tokens the model attends to at most."""

    window_tokens: int
    turns: tuple[ToldTurn, ...]


def talk_past_window(process: DaemonProcess, report: Report) -> Overflow:
    """The conversation, with the daemon killed and started again in the middle.

    Raises BenchmarkError where the daemon is not there, or the trained model is not.
    """

    def open_client(number: int) -> Client:
        report(f"turn {number} of a conversation that outgrows its window")
        if number == KILLED_BEFORE:
            process.kill()
            process.start()
        client = Client(process.options.socket, arena_bytes=ARENA_BYTES, name="demo")
        check_available(client)
        return client

    # Threads would wait for each other longer than so small a model computes.
    with torch_threads(spare_cores=torch.get_num_threads()):
        return converse(SAYINGS, open_client)


def converse(sayings: Sequence[Saying], open_client: OpenClient) -> Overflow:
    """Takes a turn for each of ``sayings``; raises BenchmarkError without the trained model."""
    directory = trained_model()
    model = Model.from_directory(directory, dtype=DTYPE)
    tokenizer = Tokenizer.from_directory(directory)
    states = StateFormat.of_model(model, model_fingerprint(directory, model.config))
    window_tokens = model.config.position_count
    done: list[Completion] = []
    for number, saying in enumerate(sayings, start=1):
        with open_client(number) as client:
            talker = Talker(client, model, states, window_tokens=window_tokens)
            done.append(
                talker.take_turn(
                    NAME,
                    tokenizer.encode(saying.text, is_continuation=number > 1),
                    new_tokens=saying.answer_tokens,
                    sampling=_sampling(number),
                )
            )
    kept = _answers_of_a_kept_cache(model, done, window_tokens)
    before = [0, *(len(each.token_ids) for each in done)]
    turns = tuple(
        ToldTurn(
            number=number,
            text=saying.text.strip(),
            answer=tokenizer.decode(each.generated_ids).strip(),
            expected=saying.expected,
            history_tokens=before[number - 1],
            dropped_tokens=sum(cut.dropped_count for cut in each.cuts),
            restored_tokens=each.restore.restored_tokens,
            computed_tokens=each.computed_tokens,
            tokens_equal=each.generated_ids == answer,
        )
        for number, (saying, each, answer) in enumerate(
            zip(sayings, done, kept, strict=True), start=1
        )
    )
    return Overflow(window_tokens=window_tokens, turns=turns)


def _sampling(number: int) -> Sampling:
    return Sampling(temperature=TEMPERATURE, top_p=TOP_P, seed=number)


def _answers_of_a_kept_cache(
    model: Model, done: Sequence[Completion], window_tokens: int
) -> list[tuple[int, ...]]:
    """What each turn says where states stay in one cache, after what was said so far."""
    script = done[-1].token_ids
    cuts = [cut for each in done for cut in each.cuts]
    logits = logits_of(model, script, cuts, Way.AS, window_tokens=window_tokens)
    answers = []
    for number, each in enumerate(done, start=1):
        sampler = Sampler(_sampling(number))
        rows = logits[each.prompt_tokens - 1 : len(each.token_ids) - 1]
        answers.append(tuple(sampler.choose(row) for row in rows))
    return answers


def faults(overflow: Overflow) -> list[str]:
    """What is wrong, one sentence each; empty when the conversation went on as it should."""
    turns = overflow.turns
    found = [
        f"turn {turn.number} of the long conversation generated other tokens than a kept cache"
        for turn in turns
        if not turn.tokens_equal
    ]
    found += [
        f"turn {turn.number} of the long conversation restored nothing"
        for turn in turns[1:]
        if not turn.restored_tokens
    ]
    if not any(turn.dropped_tokens for turn in turns[:-1]):
        found.append("the long conversation did not go on after an overflow")
    return found
