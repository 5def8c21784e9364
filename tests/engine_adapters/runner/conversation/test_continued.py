"""Conversations of the runner against one whose cache is cut by hand, turn by turn.

Each turn is a new client, saver and engine, as after a restart of the process.
"""

import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine_adapters.conversation.conversations import Conversations
from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import dropped
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.engine_adapters.runner.memory import check_released, make_store

WINDOW = 48
CHUNK_TOKENS = 8
NAME = "a talk"
RESTORED_EXACT = 1e-5
LOGITS_EXACT = 1e-4
SOURCES = {"kv": Source.KV, "hidden": Source.HIDDEN}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    path = tmp_path_factory.mktemp("model")
    return path, write_llama(path, num_key_value_heads=2, max_position_embeddings=WINDOW)


@dataclass
class Lab:
    """A conversation in a store, and the same one by hand."""

    model: Model
    state_format: StateFormat
    by_hand: HandCutConversation
    sinks: int
    store: MemoryStore = field(default_factory=make_store)
    token_budget: int = 16

    def turn(self, prompt: list[int], new_tokens: int, *, compares: bool = True) -> Completion:
        logits: list[Tensor] = []
        with MemoryClient(self.store) as client:
            saver = StateSaver(client, self.state_format)
            talks = ConversationStore(client, self.state_format, self.model, saver=saver)
            engine = Engine(
                self.model,
                cache_tokens=WINDOW + 9,
                token_budget=self.token_budget,
                requests_max=1,
                sink=saver,
            )
            # A slot that is not 0, so that positions and slots differ.
            engine._pool.reserve(9)
            forward = self.model.forward
            talk = talks.open(NAME, sink_tokens=self.sinks)

            def watched(*arguments: Any, **options: Any) -> Tensor:
                made = forward(*arguments, **options)
                logits.extend(made)
                return made

            self.model.forward = watched  # type: ignore[method-assign]
            try:
                engine.add_request(prompt, new_tokens_max=new_tokens, conversation=talk)
                (completion,) = engine.run()
            finally:
                self.model.forward = forward  # type: ignore[method-assign]
            assert completion.error is None, completion.error
            talk.end_turn(completion.token_ids, completion.cuts)
            talks.close()
            saver.close()
        check_released(self.store)
        if compares:
            self.compare(completion, logits, prompt, engine)
        return completion

    def compare(
        self, completion: Completion, logits: list[Tensor], prompt: list[int], engine: Engine
    ) -> None:
        answer, expected = self.by_hand.turn(prompt, len(completion.generated_ids))
        assert list(completion.generated_ids) == answer
        for ours, theirs in zip(logits, expected, strict=True):
            assert (ours - theirs).abs().max() < LOGITS_EXACT
        self.compare_cache(engine, self.by_hand.llama.count, LOGITS_EXACT)

    def compare_cache(self, engine: Engine, count: int, exact: float) -> None:
        hand = self.by_hand.llama
        for layer, (keys, values) in enumerate(zip(hand.keys, hand.values, strict=True)):
            slots = slice(9, 9 + count)
            ours = engine._cache.keys[layer, slots], engine._cache.values[layer, slots]
            assert (ours[0] - hand.rotated(keys)[:count]).abs().max() < exact
            assert (ours[1] - values[:count]).abs().max() < exact

    def restored(self) -> int:
        """Loads what is stored and nothing else, and compares it; how many tokens."""
        with MemoryClient(self.store) as client:
            talks = ConversationStore(client, self.state_format, self.model)
            engine = Engine(self.model, cache_tokens=WINDOW + 9)
            talk = talks.open(NAME)
            restoration = talk.begin(talk.cuts, cache=engine._cache, first_slot=9)
            assert restoration is not None
            while not restoration.state.is_over:
                restoration.advance(0)
                if restoration.state.is_waiting:
                    restoration.wait(1.0)
            count = restoration.usable.token_count
            self.compare_cache(engine, count, RESTORED_EXACT)
            restoration.close()
            talks.close()
        return count

    def truncate(self, kept: list[range]) -> None:
        with MemoryClient(self.store) as client:
            conversations = Conversations(client, self.state_format.layout.model)
            conversations.truncate(conversations.open(NAME), kept)
        self.by_hand.keep([position for one in kept for position in one])

    def lose(self, share: float, choices: random.Random) -> None:
        """Evicts states, but no token ids."""
        layout_id = self.state_format.layout.layout_id
        for key, chunk in list(self.store.chunks.items()):
            if chunk.layout_id == layout_id and choices.random() < share:
                del self.store.chunks[key]


@pytest.fixture
def make_lab(checkpoint: tuple[Path, LlamaForCausalLM]) -> Any:
    directory, theirs = checkpoint
    model = Model.from_directory(directory)

    def make(source: Source = Source.KV, *, sinks: int = 0, codec: str = "raw") -> Lab:
        schedule = LayerSchedule.of((source, model.config.layer_count))
        states = StateFormat.of_model(
            model, "talks", schedule=schedule, chunk_tokens=CHUNK_TOKENS
        ).encoded(codec)
        by_hand = HandCutConversation(theirs, window=WINDOW, sinks=sinks)
        return Lab(model, states, by_hand, sinks)

    return make


def prompt_of(number: int, count: int) -> list[int]:
    return [(7 * n * n + 11 * n + 5 * number) % 97 for n in range(count)]


@pytest.mark.parametrize("sinks", [0, 3])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_turns_of_a_conversation_that_overflows(make_lab: Any, source: Source, sinks: int) -> None:
    lab: Lab = make_lab(source, sinks=sinks)
    restored = []
    for number in range(7):
        completion = lab.turn(prompt_of(number, 9), 7)
        restored.append(completion.restore.restored_tokens)
        assert lab.restored() == lab.by_hand.llama.count
    assert lab.by_hand.cut_count >= 2
    # Every turn after the first computed its prompt and the last sampled token, no more.
    assert restored[0] == 0
    assert completion.computed_tokens == 9 + 7


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_answer_that_overflows_while_it_is_decoded(make_lab: Any, source: Source) -> None:
    lab: Lab = make_lab(source, sinks=2)
    completion = lab.turn(prompt_of(1, 20), 100)
    assert lab.by_hand.cut_count >= 3
    assert len(completion.cuts) == lab.by_hand.cut_count
    lab.turn(prompt_of(2, 5), 60)
    assert lab.restored() == lab.by_hand.llama.count


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_cuts_between_turns_at_any_count(make_lab: Any, source: Source) -> None:
    lab: Lab = make_lab(source)
    choices = random.Random(5)
    for number in range(12):
        lab.turn(prompt_of(number, choices.randint(1, 9)), choices.randint(1, 6))
        count = lab.by_hand.llama.count
        if number % 2:
            dropped_at = sorted(choices.sample(range(count + 1), 2))
            lab.truncate([range(dropped_at[0]), range(dropped_at[1], count)])
        lab.restored()


@pytest.mark.parametrize("codec", ["raw", "zstd"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_states_that_are_lost_are_computed_as_they_were(
    make_lab: Any, share: float, codec: str
) -> None:
    """Those from after a cut depend on what it dropped: the cut is made again on the way."""
    lab: Lab = make_lab(sinks=1, codec=codec)
    choices = random.Random(3)
    for number in range(8):
        lab.turn(prompt_of(number, choices.randint(4, 12)), choices.randint(3, 20))
        lab.lose(share, choices)
    assert lab.by_hand.cut_count >= 3


def test_conversations_and_a_prompt_in_one_batch(
    make_lab: Any, checkpoint: tuple[Path, LlamaForCausalLM]
) -> None:
    """Each cuts its own slots, when its own turn has come."""
    lab: Lab = make_lab(sinks=2)
    prompts = {"one": prompt_of(1, 30), "two": prompt_of(2, 7), "three": prompt_of(3, 17)}
    by_hand = {name: HandCutConversation(checkpoint[1], window=WINDOW, sinks=2) for name in prompts}
    with MemoryClient(lab.store) as client:
        saver = StateSaver(client, lab.state_format)
        talks = ConversationStore(client, lab.state_format, lab.model, saver=saver)
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


def test_a_fresh_prompt_of_what_a_cut_has_left_is_computed(make_lab: Any) -> None:
    lab: Lab = make_lab()
    for number in range(3):
        lab.turn(prompt_of(number, 12), 12)
    with MemoryClient(lab.store) as client:
        talk = Conversations(client, lab.state_format.layout.model).open(NAME)
        first = talk.cuts[0].first_token
        rest = list(talk.token_ids[first:])
        keys = client.prefix_keys(lab.state_format.layout, rest)
        assert len(keys) > 1
        assert client.match(lab.state_format.layout, keys).chunk_count == 0


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
            if len(talk.token_ids) + 9 > WINDOW:
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
