"""Conversations of the runner against one whose cache is cut by hand, turn by turn.

Each turn is a new client, saver and engine, as after a restart of the process.
"""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from engine_adapters.conversation.conversations import Conversations
from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import dropped
from engine_adapters.conversation.journal import NAME_SUFFIX
from engine_adapters.restore import LayerSchedule, Preload, Source
from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.checkpoints import write_opt
from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.engine_adapters.runner.conversation.lab import (
    CHUNK_TOKENS,
    LOGITS_EXACT,
    NAME,
    WINDOW,
    Lab,
    prompt_of,
)
from tests.engine_adapters.runner.memory import check_released, make_store

SOURCES = {"kv": Source.KV, "hidden": Source.HIDDEN}
PRELOADS = (Preload.SPANS, Preload.LAYERS)


@pytest.mark.parametrize("preload", PRELOADS)
@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_turns_of_a_conversation_that_overflows(
    make_lab: Any, source: Source, sinks: int, preload: Preload
) -> None:
    lab: Lab = make_lab(source, sinks=sinks, preload=preload)
    restored = []
    for number in range(7):
        completion = lab.turn(prompt_of(number, 9), 7)
        restored.append(completion.restore.restored_tokens)
        assert lab.restored() == lab.by_hand.llama.count
    assert lab.by_hand.cut_count >= 2
    # Every turn after the first computed its prompt and the last sampled token, no more.
    assert restored[0] == 0
    assert completion.computed_tokens == 9 + 7


@pytest.mark.parametrize("preload", PRELOADS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_answer_that_overflows_while_it_is_decoded(
    make_lab: Any, source: Source, preload: Preload
) -> None:
    lab: Lab = make_lab(source, sinks=2, preload=preload)
    completion = lab.turn(prompt_of(1, 20), 100)
    assert lab.by_hand.cut_count >= 3
    assert len(completion.cuts) == lab.by_hand.cut_count
    lab.turn(prompt_of(2, 5), 60)
    assert lab.restored() == lab.by_hand.llama.count


@pytest.mark.parametrize("preload", PRELOADS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_cuts_between_turns_at_any_count(make_lab: Any, source: Source, preload: Preload) -> None:
    lab: Lab = make_lab(source, preload=preload)
    choices = random.Random(5)
    for number in range(12):
        lab.turn(prompt_of(number, choices.randint(1, 9)), choices.randint(1, 6))
        count = lab.by_hand.llama.count
        if number % 2:
            dropped_at = sorted(choices.sample(range(count + 1), 2))
            lab.truncate([range(dropped_at[0]), range(dropped_at[1], count)])
        lab.restored()


@pytest.mark.parametrize("preload", PRELOADS)
@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_states_that_are_lost_are_computed_as_they_were(
    make_lab: Any, share: float, codec: str, preload: Preload
) -> None:
    """Those from after a cut depend on what it dropped: the cut is made again on the way."""
    lab: Lab = make_lab(sinks=1, codec=codec, preload=preload)
    choices = random.Random(3)
    for number in range(8):
        lab.turn(prompt_of(number, choices.randint(4, 12)), choices.randint(3, 20))
        lab.lose(share, choices)
    assert lab.by_hand.cut_count >= 3


@pytest.mark.parametrize("preload", PRELOADS)
def test_conversations_and_a_prompt_in_one_batch(
    make_lab: Any, checkpoint: tuple[Path, LlamaForCausalLM], preload: Preload
) -> None:
    """Each cuts its own slots, when its own turn has come."""
    lab: Lab = make_lab(sinks=2, preload=preload)
    prompts = {"one": prompt_of(1, 30), "two": prompt_of(2, 7), "three": prompt_of(3, 17)}
    by_hand = {name: HandCutConversation(checkpoint[1], window=WINDOW, sinks=2) for name in prompts}
    with MemoryClient(lab.store) as client:
        saver = StateSaver(client, lab.state_format)
        talks = ConversationStore(
            client, lab.state_format, lab.model, saver=saver, options=lab.options
        )
        for _ in range(3):
            engine = Engine(lab.model, cache_tokens=4 * WINDOW, sink=saver)
            opened = {}
            for name, prompt in prompts.items():
                talk = talks.open(name, sink_tokens=2)
                number = engine.add_request(prompt, new_tokens_max=25, conversation=talk)
                opened[number] = name, talk
            plain = engine.add_request(prompt_of(4, 11), new_tokens_max=20)
            for completion in engine.run():
                assert completion.error is None
                if completion.request_id == plain:
                    fresh = HandCutConversation(checkpoint[1], window=WINDOW)
                    expected, _ = fresh.turn(prompt_of(4, 11), 20)
                else:
                    name, talk = opened[completion.request_id]
                    expected, _ = by_hand[name].turn(prompts[name], 25)
                    talk.end_turn(completion.token_ids, completion.cuts)
                assert list(completion.generated_ids) == expected
        talks.close()
        saver.close()
    assert all(by_hand[name].cut_count > 1 for name in prompts)
    check_released(lab.store)


def test_a_turn_that_never_ended_has_not_happened(make_lab: Any) -> None:
    """Its states are in the store, and its token ids are not."""
    lab: Lab = make_lab()
    lab.turn(prompt_of(0, 10), 9)
    with MemoryClient(lab.store) as client:
        saver = StateSaver(client, lab.state_format)
        talks = ConversationStore(client, lab.state_format, lab.model, saver=saver)
        engine = Engine(lab.model, cache_tokens=WINDOW, sink=saver)
        engine.add_request([1] * 13, new_tokens_max=9, conversation=talks.open(NAME))
        engine.run()
        saver.close()
        talks.close()
    lab.turn(prompt_of(1, 10), 9)
    lab.turn(prompt_of(2, 3), 4)


@pytest.mark.parametrize("turns", [0, 1])
def test_a_first_turn_without_an_end_left_its_states(make_lab: Any, turns: int) -> None:
    """Bug: the store kept a sequence of a name that perhaps nobody ever asks for again."""
    lab: Lab = make_lab()
    for number in range(turns):
        lab.turn(prompt_of(number, 10), 9)
    with MemoryClient(lab.store) as client:
        saver = StateSaver(client, lab.state_format)
        talks = ConversationStore(client, lab.state_format, lab.model, saver=saver)
        engine = Engine(lab.model, cache_tokens=WINDOW, sink=saver)
        talk = talks.open(NAME)
        engine.add_request([1] * 13, new_tokens_max=9, conversation=talk)
        engine.run()
        saver.finish()
        assert NAME in client.sequences.list()
        talk.abandon()
        assert client.sequences.list() == [NAME, NAME + NAME_SUFFIX] * turns
        saver.close()
        talks.close()
    lab.turn(prompt_of(turns, 10), 9)


def test_a_turn_after_an_aborted_one_looked_at_its_states_too_soon(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what the aborted turn still had to save changed the sequence after that look."""
    lab: Lab = make_lab()
    lab.turn(prompt_of(0, 10), 9)
    with MemoryClient(lab.store) as client:
        saver = StateSaver(client, lab.state_format)
        talks = ConversationStore(client, lab.state_format, lab.model, saver=saver)
        finished: list[str] = []
        monkeypatch.setattr(saver, "finish", lambda: finished.append("finish"))
        talks.open(NAME).abandon()
        assert finished == ["finish"]
        monkeypatch.undo()
        saver.close()
        talks.close()
    lab.turn(prompt_of(1, 10), 9)


def test_a_fresh_prompt_of_what_a_cut_has_left_is_computed(make_lab: Any) -> None:
    lab: Lab = make_lab()
    for number in range(3):
        lab.turn(prompt_of(number, 12), 12)
    with MemoryClient(lab.store) as client:
        talk = Conversations(client, lab.state_format.layout.model).open(NAME)
        first = talk.told.cuts[0].first_token
        rest = list(talk.told.token_ids[first:])
        keys = client.prefix_keys(lab.state_format.layout, rest)
        assert len(keys) > 1
        assert client.match(lab.state_format.layout, keys).chunk_count == 0


def test_sinks_as_large_as_the_window_ended_a_turn_in_the_middle(make_lab: Any) -> None:
    """Bug: the answer was lost when the window was full, because nothing could be dropped."""
    lab: Lab = make_lab(sinks=WINDOW)
    with pytest.raises(RequestError, match="set sink_tokens lower"):
        lab.turn(prompt_of(0, 10), 4)


def test_a_turn_longer_than_the_window_is_refused(make_lab: Any) -> None:
    lab: Lab = make_lab()
    lab.turn(prompt_of(0, 10), 9)
    with pytest.raises(RequestError, match="exceed a window of 48 tokens"):
        lab.turn(prompt_of(1, WINDOW), 1, compares=False)


def test_layers_that_are_recomputed_are_refused(make_lab: Any) -> None:
    lab: Lab = make_lab()
    layers = lab.model.config.layer_count
    schedule = LayerSchedule.of((Source.COMPUTE, 1), (Source.KV, layers - 1))
    states = StateFormat.of_model(lab.model, "talks", schedule=schedule)
    with MemoryClient(lab.store) as client, pytest.raises(ConversationError, match="recomputes 1"):
        ConversationStore(client, states, lab.model)


def test_learned_positions_are_refused_when_they_overflow(tmp_path: Path) -> None:
    write_opt(tmp_path, max_position_embeddings=WINDOW)
    model = Model.from_directory(tmp_path)
    states = StateFormat.of_model(model, "talks", chunk_tokens=CHUNK_TOKENS)
    with MemoryClient(make_store()) as client:
        talks = ConversationStore(client, states, model)
        for number in itertools.count():
            engine = Engine(model, cache_tokens=WINDOW)
            talk = talks.open(NAME)
            if len(talk.told.token_ids) + 9 > WINDOW:
                break
            engine.add_request(prompt_of(number, 5), new_tokens_max=3, conversation=talk)
            (completion,) = engine.run()
            talk.end_turn(completion.token_ids, completion.cuts)
        with pytest.raises(RequestError, match="learned absolute positions"):
            engine.add_request(prompt_of(number, 9), new_tokens_max=3, conversation=talk)
        engine.add_request([1], new_tokens_max=20, conversation=talk)
        (completion,) = engine.run()
        assert "learned absolute positions" in str(completion.error)
        conversations = Conversations(client, states.layout.model)
        cut = conversations.truncate(conversations.open(NAME), [range(4)])
        with pytest.raises(ConversationError, match="hold the positions"):
            conversations.stored(cut, states.layout, lease_ms=1000)
        assert dropped(cut.cuts) > 0
        talks.close()


@torch.no_grad()
def test_the_one_by_hand_is_a_llama(checkpoint: tuple[Path, LlamaForCausalLM]) -> None:
    """Without cuts it is what transformers computes."""
    _, theirs = checkpoint
    by_hand = HandCutConversation(theirs, window=WINDOW)
    prompt = prompt_of(1, 20)
    _, logits = by_hand.turn(prompt, 1)
    expected = theirs(torch.tensor([prompt])).logits[0, -1]
    assert (logits[0] - expected).abs().max() < LOGITS_EXACT
