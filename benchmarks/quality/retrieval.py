"""Whether what a cut has left can still be asked for (AttentionStore, table 2).

A history of text and records fills the window. A question follows: it overflows, the first half is
dropped, and the question is about a record in the other half.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.benchmark import BenchmarkError
from benchmarks.quality.bare_window import BareWindow
from benchmarks.quality.records import QUESTION_TOKENS, RECORD_TOKENS, RecordWords
from benchmarks.quality.talk import Talker
from benchmarks.quality.teacher import TeacherModel
from benchmarks.quality.way import Way
from engine_adapters.conversation.history import overflow_cut
from engine_adapters.runner.model.model import Model
from kvstored_contract.keys import Cut

RECORDS = 40
"""Told in a history, half of which is text."""
QUESTION_TEXT_TOKENS = 24
"""Text before the question itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``history`` fills all but a token of the window, ``prompt`` asks, ``answer`` is right.

    ``cut`` is the one that makes room for the prompt.
    """

    history: tuple[int, ...]
    prompt: tuple[int, ...]
    answer: int
    cut: Cut


def draw_question(
    generator: random.Random,
    words: RecordWords,
    text: Sequence[int],
    *,
    window_tokens: int,
    sink_tokens: int = 0,
) -> Question:
    """Text from random places of ``text``, between two runs of records.

    Words of that text are in no record.
    """
    spare = window_tokens - 1 - RECORDS * RECORD_TOKENS
    counts = (spare // 2, spare - spare // 2, QUESTION_TEXT_TOKENS)
    texts = [_piece(generator, text, count) for count in counts]
    records = words.without(token for piece in texts for token in piece).draw(generator, RECORDS)
    early, late = records[: RECORDS // 2], records[RECORDS // 2 :]
    history = [*texts[0], *words.write(early), *texts[1], *words.write(late)]
    # The last token of the history is its answer, which the next turn computes.
    cut = overflow_cut(
        (),
        len(history) - 1,
        new_count=1 + QUESTION_TEXT_TOKENS + QUESTION_TOKENS,
        window_tokens=window_tokens,
        sink_tokens=sink_tokens,
    )
    assert cut is not None
    asked = generator.choice(late)
    assert history.index(asked.key) >= cut.kept[-1].start
    return Question(
        history=tuple(history),
        prompt=(*texts[2], *words.ask(asked)),
        answer=asked.value,
        cut=cut,
    )


def _piece(generator: random.Random, text: Sequence[int], count: int) -> Sequence[int]:
    first = generator.randrange(len(text) - count)
    return text[first : first + count]


def ask_by_talk(talker: Talker, model: TeacherModel, name: str, question: Question) -> int:
    """The answer in a conversation that is restored from the store, cut by the engine.

    Raises BenchmarkError where it was not cut as the question wants it.
    """
    model.teach(question.history)
    talker.take_turn(name, question.history[:-1], new_tokens=1)
    done = talker.take_turn(name, question.prompt, new_tokens=1)
    if done.cuts != (question.cut,) or not done.restore.restored_tokens:
        raise BenchmarkError(f"{name} was not restored, or cut elsewhere: {done.cuts}")
    return done.token_ids[-1]


def ask(model: Model, question: Question, way: Way, *, window_tokens: int) -> int:
    """The answer with the cut made in another way."""
    window = BareWindow(model, window_tokens=window_tokens)
    window.extend(question.history[:-1])
    window.cut(question.cut.kept, way)
    logits = window.extend((question.history[-1], *question.prompt))
    return int(logits[-1].argmax())
