"""A conversation of the runner, and the same one whose cache is cut by hand.

Each turn is a new client, saver and engine, as after a restart of the process.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from engine_adapters.conversation.conversations import Conversations
from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion, Request
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.engine_adapters.runner.memory import check_released, make_store

WINDOW = 48
CHUNK_TOKENS = 8
NAME = "a talk"
RESTORED_EXACT = 1e-5
LOGITS_EXACT = 1e-4


@dataclass
class Lab:
    """A conversation in a store, and the same one by hand."""

    model: Model
    state_format: StateFormat
    by_hand: HandCutConversation
    sinks: int
    store: MemoryStore = field(default_factory=make_store)
    token_budget: int = 16
    options: RestoreOptions = field(default_factory=RestoreOptions)

    def turn(self, prompt: list[int], new_tokens: int, *, compares: bool = True) -> Completion:
        logits: list[Tensor] = []
        with MemoryClient(self.store) as client:
            saver = StateSaver(client, self.state_format)
            talks = ConversationStore(
                client, self.state_format, self.model, saver=saver, options=self.options
            )
            engine = Engine(
                self.model,
                cache_tokens=WINDOW + 9,
                token_budget=self.token_budget,
                requests_max=1,
                sink=saver,
            )
            # A slot that is not 0, so that positions and slots differ.
            engine._pool.reserve(9)
            sample = engine._sample
            talk = talks.open(NAME, sink_tokens=self.sinks)

            def watched(ready: Sequence[Request], made: Tensor) -> list[Completion]:
                logits.extend(made)
                return sample(ready, made)

            vars(engine)["_sample"] = watched
            engine.add_request(prompt, new_tokens_max=new_tokens, conversation=talk)
            (completion,) = engine.run()
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
            talks = ConversationStore(client, self.state_format, self.model, options=self.options)
            engine = Engine(self.model, cache_tokens=WINDOW + 9)
            talk = talks.open(NAME)
            restoration = talk.begin(
                talk.told.cuts, cache=engine._cache, first_slot=9, new_tokens=1
            )
            assert restoration is not None
            while not restoration.state.is_over:
                restoration.advance(0)
                if restoration.state.is_waiting:
                    restoration.wait(1.0)
            count = talk.usable.token_count
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


def prompt_of(number: int, count: int) -> list[int]:
    return [(7 * n * n + 11 * n + 5 * number) % 97 for n in range(count)]
