"""A Hypothesis state machine drives conversations in a store against a plain model of them."""

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.journal import NAME_SUFFIX
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_contract.keys import Cut, history_keys
from tests.engine_adapters.runner.conversation.store_moments import Kill, StoreMoments
from tests.engine_adapters.runner.conversation.talk_model import Event, TalkModel
from tests.engine_adapters.runner.conversation.toy_engine import ToyEngine
from tests.engine_adapters.runner.conversation.toy_states import (
    CHUNK_TOKENS,
    LAYOUT,
    VOCABULARY,
    rows_of,
)

TALKS_MAX = 4
TOKENS_MAX = 90
"""A conversation as long as this is forgotten."""
PROMPT_MAX = 6
NEW_TOKENS_MAX = 7
TURNS_MAX = 3
CALLS_MAX = 20
"""Of a turn: some kills come too late."""
APPENDS_MAX = 4
COLLECTED_TOGETHER = 50
"""Walks whose remains are collected at once."""
DICE = st.integers(0, 2**32 - 1)
KILLS = st.none() | st.builds(
    Kill, call=st.integers(1, CALLS_MAX), is_served=st.booleans(), revives=st.booleans()
)


class ConversationMachine(RuleBasedStateMachine):
    """Turns, cuts, forks, evictions and kills, in any order.

    Rules have no preconditions: a kill comes at a call of one of several threads, so the same walk
    may end with other conversations, and Hypothesis must still draw the same.

    ``met`` counts what the walks of a whole run have come by, ``left`` those that are over.
    """

    met: ClassVar[Counter[str]] = Counter()
    left: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.moments = StoreMoments(self.store)
        self.engine = ToyEngine(MemoryClient(self.store))
        self.talks: dict[str, TalkModel] = {}
        self.made = 0
        self.events: dict[bytes, tuple[Event, ...]] = {}
        """By key, what a chunk came from."""
        self.keys: dict[tuple[Event, ...], bytes] = {}
        self.rows: dict[bytes, list[bytes]] = {}
        """By key, what a chunk must hold."""

    def teardown(self) -> None:
        self.engine.close()
        # Else the store's end of the last session is open until the store is collected.
        self.store.end_left_sessions()
        type(self).left += 1
        if self.left % COLLECTED_TOGETHER == 0:
            # What a walk leaves is in cycles. Beside all that Hypothesis keeps, Python looks for
            # them so seldom that gigabytes of them are there at once.
            gc.collect()

    @rule(dice=DICE, kill=KILLS)
    def begin(self, dice: int, kill: Kill | None) -> None:
        if len(self.talks) < TALKS_MAX:
            self.begin_one(random.Random(dice), kill)

    @rule(dice=DICE)
    def turns(self, dice: int) -> None:
        chance = random.Random(dice)
        name = self.some_talk(chance)
        for _ in range(chance.randint(1, TURNS_MAX)):
            self.take_turn(name, chance, None)

    @rule(dice=DICE, kill=KILLS)
    def turn_that_is_killed(self, dice: int, kill: Kill | None) -> None:
        chance = random.Random(dice)
        self.take_turn(self.some_talk(chance), chance, kill)

    @rule(dice=DICE, is_late=st.booleans(), kill=KILLS)
    def turn_whose_states_are_not_kept(self, dice: int, is_late: bool, kill: Kill | None) -> None:
        """Its devices are late, or DRAM has no room for the rows of a step."""
        chance = random.Random(dice)
        self.moments.are_states_late = is_late
        if not is_late:
            self.moments.dropped_appends = frozenset([chance.randrange(APPENDS_MAX)])
        self.take_turn(self.some_talk(chance), chance, kill)

    @rule(dice=DICE)
    def turn_whose_token_ids_are_evicted(self, dice: int) -> None:
        """After they were read: who adds a turn has them, and puts them again."""
        chance = random.Random(dice)
        name = self.some_talk(chance)
        tail = self.words_tail(name)
        self.moments.evicted_key = tail[0] if tail else b""
        self.take_turn(name, chance, None)

    @rule(dice=DICE, kill=KILLS)
    def cut(self, dice: int, kill: Kill | None) -> None:
        """Between two turns, at any count, with some kept ranges."""
        chance = random.Random(dice)
        name = self.some_talk(chance)
        before = self.talks[name]
        count = min(chance.choice([0, 2, 4]), (len(before.left) + 1) // 2 * 2)
        bounds = sorted(chance.sample(range(len(before.left) + 1), count))
        kept = [range(*pair) for pair in zip(bounds[::2], bounds[1::2], strict=True)]
        if sum(map(len, kept)) == len(before.left):
            return
        after = before.copied()
        after.cut(kept)
        with self.action(kill):
            conversations = self.engine.conversations
            conversations.truncate(conversations.open(name), kept)
        self.settle(name, after)

    @rule(dice=DICE, kill=KILLS)
    def fork(self, dice: int, kill: Kill | None) -> None:
        if len(self.talks) == TALKS_MAX:
            return
        name, new_name = self.some_talk(random.Random(dice)), f"talk {self.made + 1}"
        if not self.talks[name].token_ids:
            # Its first turn was killed: the store may have no sequence of it.
            return
        with self.action(kill):
            self.engine.conversations.fork(name, new_name)
        if self.moments.has_happened:
            self.made += 1
            self.talks[new_name] = self.talks[name].copied()

    @rule(dice=DICE)
    def forget(self, dice: int) -> None:
        name = self.some_talk(random.Random(dice))
        if len(self.talks[name].rows) > TOKENS_MAX:
            assert self.engine.conversations.delete(name)
            del self.talks[name]

    @rule(dice=DICE, share=st.sampled_from([0.1, 0.5, 1.0]))
    def evict(self, dice: int, share: float) -> None:
        """States, but no token ids."""
        chance = random.Random(dice)
        for key in self.stored_keys():
            if chance.random() < share:
                del self.store.chunks[key]

    @rule(dice=DICE)
    def lose_a_tail(self, dice: int) -> None:
        sequence = self.store.sequences.get((self.some_talk(random.Random(dice)), 0))
        if sequence is not None and sequence.durable_tail is not None:
            self.store.chunks.pop(sequence.durable_tail[0], None)

    @rule(dice=DICE)
    def lose_token_ids(self, dice: int) -> None:
        """Nothing can compute them again, so opening raises; then they are back."""
        name = self.some_talk(random.Random(dice))
        tail = self.words_tail(name)
        if tail is None:
            return
        chunk = self.store.chunks.pop(tail[0])
        with pytest.raises(ConversationError, match="has lost token ids"):
            self.engine.conversations.open(name)
        self.store.chunks[tail[0]] = chunk

    @rule()
    def reopen(self) -> None:
        """Another process goes on."""
        self.restart_engine()

    @rule()
    def restart_the_store(self) -> None:
        """The engine stays and connects again."""
        self.store.restart()

    @invariant()
    def chunks_hold_what_their_keys_say(self) -> None:
        for key in self.stored_keys():
            assert rows_of(self.store.chunks[key]) == self.rows[key], self.events[key]

    @invariant()
    def the_last_finished_turn_is_found(self) -> None:
        for name, talk in self.talks.items():
            found = self.engine.conversations.open(name)
            assert found.token_ids == tuple(talk.token_ids)
            kept = [tuple((one.start, one.stop) for one in cut.kept) for cut in found.cuts]
            assert kept == talk.cuts

    @invariant()
    def usable_states_are_those_of_the_window(self) -> None:
        """As many as there can be, and none that was computed from anything else."""
        for name, talk in self.talks.items():
            conversation = self.engine.conversations.open(name)
            stored = self.engine.stored(conversation, list(conversation.cuts))
            rows = self.engine.loaded(stored)
            usable = stored.usable
            left = talk.trail[usable.cut_count, usable.next_token]
            assert rows == [talk.rows[number] for number in left]
            best = self.best_of(name, talk)
            assert usable.next_token == best
            self.met["whole windows of cut conversations"] += best == len(talk.rows) != len(left)
            self.met["windows that were lost before a cut"] += usable.cut_count < len(talk.cuts)

    @invariant()
    def a_fresh_prompt_finds_what_no_cut_came_before(self) -> None:
        for talk in self.talks.values():
            prompt = talk.left_ids
            stops = range(CHUNK_TOKENS, len(prompt) + 1, CHUNK_TOKENS)
            expected = 0
            while expected < len(stops) and self.is_stored(tuple(prompt[: stops[expected]])):
                expected += 1
            keys = self.engine.client.prefix_keys(LAYOUT, prompt)
            assert self.engine.client.match(LAYOUT, keys).chunk_count == expected
            is_cut = len(prompt) < len(talk.rows)
            self.met["fresh prompts that miss"] += is_cut and expected < len(stops)

    def take_turn(self, name: str, chance: random.Random, kill: Kill | None) -> None:
        """The same of the model and of the engine; a turn without an end may be taken again."""
        prompt = [chance.randrange(VOCABULARY) for _ in range(chance.randint(1, PROMPT_MAX))]
        new_tokens = chance.randint(1, NEW_TOKENS_MAX)
        after = self.talks[name].copied()
        after.turn(prompt, new_tokens)
        self.note_keys(after)
        with self.action(kill):
            made = self.engine.turn(name, prompt, new_tokens)
            assert made.token_ids == tuple(after.token_ids)
        self.settle(name, after)

    def settle(self, name: str, after: TalkModel) -> None:
        """What the store has done counts, whatever the engine has heard of it."""
        if self.moments.has_happened:
            self.talks[name] = after
        assert self.moments.has_happened or self.moments.was_killed
        self.met["kills before the end of a turn"] += not self.moments.has_happened
        self.met["kills after it"] += self.moments.has_happened and self.moments.was_killed

    @contextmanager
    def action(self, kill: Kill | None) -> Iterator[None]:
        """The body may be killed, and must not fail otherwise; an engine that is gone is made."""
        with self.moments.action(kill):
            try:
                yield
            except ConversationError:
                assert self.moments.was_killed
        if self.moments.was_killed and kill is not None and not kill.revives:
            self.restart_engine()

    def restart_engine(self) -> None:
        self.engine.close()
        self.engine = ToyEngine(MemoryClient(self.store))

    def begin_one(self, chance: random.Random, kill: Kill | None) -> None:
        self.made += 1
        self.talks[f"talk {self.made}"] = TalkModel()
        self.take_turn(f"talk {self.made}", chance, kill)

    def some_talk(self, chance: random.Random) -> str:
        """One of those that there are; without any one begins."""
        if not self.talks:
            self.begin_one(chance, None)
        return chance.choice(sorted(self.talks))

    def words_tail(self, name: str) -> tuple[bytes, int] | None:
        """The last, short chunk of token ids; None also where no turn of it has ended."""
        sequence = self.store.sequences.get((name + NAME_SUFFIX, 0))
        return None if sequence is None else sequence.durable_tail

    def stored_keys(self) -> list[bytes]:
        """Of chunks of states."""
        chunks = self.store.chunks
        return sorted(key for key in chunks if chunks[key].layout_id == LAYOUT.layout_id)

    def is_stored(self, events: tuple[Event, ...]) -> bool:
        return self.keys.get(events) in self.store.chunks

    def note_keys(self, talk: TalkModel) -> None:
        """Keys of all chunks that a conversation may ever have, and those of its tokens alone."""
        cuts = talk.made_cuts()
        complete = self.keys_of(talk.token_ids[: len(talk.rows)], cuts)
        for stop in range(1, len(talk.rows) + 1):
            chunk = (stop - 1) // CHUNK_TOKENS
            first = chunk * CHUNK_TOKENS
            parent = complete[chunk - 1] if chunk else b""
            (key,) = self.keys_of(talk.token_ids[first:stop], cuts, first=first, parent=parent)
            self.note_key(key, talk.identity(stop))
            rows = talk.chunk_rows(stop)
            assert self.rows.setdefault(key, rows) == rows
        for token_ids in (talk.token_ids, talk.left_ids):
            stops = range(CHUNK_TOKENS, len(token_ids) + 1, CHUNK_TOKENS)
            for stop, key in zip(stops, self.keys_of(token_ids, ()), strict=False):
                self.note_key(key, tuple(token_ids[:stop]))

    def note_key(self, key: bytes, events: tuple[Event, ...]) -> None:
        """Keys are equal exactly where everything up to the end of the chunk is."""
        assert self.events.setdefault(key, events) == events
        assert self.keys.setdefault(events, key) == key

    def keys_of(
        self, token_ids: Sequence[int], cuts: Sequence[Cut], *, first: int = 0, parent: bytes = b""
    ) -> list[bytes]:
        """Of the chunks of a history, or of what follows one of them."""
        return history_keys(
            namespace=self.store.namespace,
            layout=LAYOUT,
            token_ids=token_ids,
            cuts=cuts,
            first_token=first,
            parent=parent,
        )

    def best_of(self, name: str, talk: TalkModel) -> int:
        """The last token after which everything that is left is stored, by trying all of them."""
        stop = len(talk.rows) // CHUNK_TOKENS * CHUNK_TOKENS
        sequence = self.store.sequences.get((name, 0))
        if sequence is not None and sequence.durable_tail is not None:
            key, tokens = sequence.durable_tail
            end = len(sequence.keys) * CHUNK_TOKENS + tokens
            if stop < end <= len(talk.rows) and self.events[key] == talk.identity(end):
                stop = end
        firsts = range(0, stop, CHUNK_TOKENS)
        there = {
            first // CHUNK_TOKENS
            for first in firsts
            if self.is_stored(talk.identity(min(first + CHUNK_TOKENS, stop)))
        }
        return max(
            computed
            for (_, computed), left in talk.trail.items()
            if all(number < stop and number // CHUNK_TOKENS in there for number in left)
        )
