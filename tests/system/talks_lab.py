"""Many conversations of an engine process with a daemon, either of which may be killed."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from transformers import LlamaForCausalLM

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    StateKind,
    StateLayout,
)
from kvstored_contract.limits import KEY_BYTES
from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.template import ForkedProcess, Template
from tests.support.waiting import SOON_S, wait_until
from tests.system.spoken import Foreseen, Spoken, Turn
from tests.system.talking import BATCH, CHUNK_TOKENS, TALKER, WINDOW, Message, Voice

VOCABULARY = 97
PROMPT_MAX = 20
NEW_TOKENS_MAX = 12
CUT_SHARE = 0.25
"""Of the turns; the window overflows in others."""
FORK_SHARE = 0.3
"""Of the conversations: they begin as another one is."""
LOSS_SHARE = 0.3
"""Of the rounds: behind them states of a conversation are deleted."""
ARENA_BYTES = "8MiB"
LATE = 1.2
"""Kills come within so many times what a round takes, so some come after its end."""
SLAB_BYTES = MIB
DEVICE_SLABS_LEAST = 64
"""A slab of token ids that has free places counts as little here as on a real device: where it is
more than 2 % of the devices, states take it, and with it token ids that were just used."""
TALK_DRAM_BYTES = 32 * 1024
"""An eighth of what a window takes."""
FILLING_MAX = 256
"""Chunks of others in a round."""
FILLER = StateLayout(
    model="filler",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 256),) * 3,
    chunk_tokens=CHUNK_TOKENS,
)
"""Its chunks have the size of those of the talker's states."""
FILLER_BYTES = 16 * 1024
LOST_WORDS = "has lost token ids"


def device_slabs(talk_count: int) -> int:
    """Slabs of each device.

    Both together hold all that the conversations store: a sequence that is used keeps what was cut
    of it, too. With less, the token ids of the one that waits longest are the oldest of all.
    """
    return max(DEVICE_SLABS_LEAST, 3 * talk_count)


def overrides_for(talk_count: int) -> Overrides:
    """Devices that hold all that is used and DRAM that holds an eighth of the windows."""
    dram_slabs = max(2, talk_count * TALK_DRAM_BYTES // SLAB_BYTES)
    return {
        "store": {
            "device_bytes": (device_slabs(talk_count) + 2) * SLAB_BYTES,
            "slab_bytes": SLAB_BYTES,
        },
        "dram": {"capacity_bytes": dram_slabs * SLAB_BYTES},
    }


def filling_of(talk_count: int, round_count: int) -> int:
    """Chunks of others in each round, so that all rounds together fill the devices twice."""
    wanted = 2 * 2 * device_slabs(talk_count) * SLAB_BYTES // FILLER_BYTES // round_count
    return min(wanted, FILLING_MAX)


class Killed(StrEnum):
    """Who is killed in a round."""

    ENGINE = "engine"
    DAEMON = "daemon"
    BOTH = "engine and daemon"


@dataclass(slots=True)
class Tally:
    """What a run has come by.

    ``lost`` conversations have lost their token ids and said so; ``unheard`` turns had happened
    although a kill swallowed the answer, ``retaken`` ones had not.
    """

    turns: int = 0
    cuts: int = 0
    kills: int = 0
    restored_tokens: int = 0
    recomputed_tokens: int = 0
    unheard: int = 0
    retaken: int = 0
    lost: int = 0


class TalksLab:
    """The driver: says what comes next, kills, evicts, and compares every answer.

    As a context manager it ends the engine process with the body.
    """

    def __init__(
        self,
        daemon: DaemonProcess,
        template: Template,
        checkpoint: tuple[Path, LlamaForCausalLM],
        choices: random.Random,
    ) -> None:
        self.tally = Tally()
        self._daemon = daemon
        self._template = template
        self._directory, self._theirs = checkpoint
        self._choices = choices
        self._voice = Voice(daemon.socket_path.parent)
        self._client = Client(
            daemon.socket_path, arena_bytes=ARENA_BYTES, name="driver", reconnect_interval_s=0
        )
        self._spoken: dict[str, Spoken] = {}
        self._round_s = 0.0
        self._engine = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.kill()
        self._engine.wait()
        self._client.close()
        self._voice.close()

    def run(self, *, talks: int, turns: int, kills: int) -> None:
        """So many conversations of so many turns each, with so many rounds that are killed."""
        sweeps = [self._sweep(talks) for _ in range(turns)]
        rounds = [names for sweep in sweeps for names in sweep]
        killed = set(self._choices.sample(range(len(rounds)), kills))
        for number, names in enumerate(rounds):
            for name in names:
                if name not in self._spoken:
                    self._begin(name)
            self._round(names, self._choices.choice(list(Killed)) if number in killed else None)
            if self._choices.random() < LOSS_SHARE:
                self._lose_states()
            self._fill(filling_of(talks, len(rounds)))

    def evicted_chunks(self) -> int:
        """Those that the daemon has evicted from its devices since its start."""
        return self._client.admin.stats().counters["evicted_chunks"]

    def _sweep(self, talks: int) -> list[list[str]]:
        """A turn of each conversation, in random order."""
        names = [f"talk {number}" for number in range(talks)]
        self._choices.shuffle(names)
        return [names[first : first + BATCH] for first in range(0, talks, BATCH)]

    def _begin(self, name: str) -> None:
        told = sorted(name for name, spoken in self._spoken.items() if spoken.token_ids)
        if told and self._choices.random() < FORK_SHARE:
            original = self._choices.choice(told)
            (found,) = self._asked({"fork": [original, name]}).values()
            self._spoken[name] = self._spoken[original].copied()
            assert found.get("token_ids") == self._spoken[name].token_ids, found
        else:
            by_hand = HandCutConversation(self._theirs, window=WINDOW)
            self._spoken[name] = Spoken(by_hand=by_hand)

    def _round(self, names: Sequence[str], killed: Killed | None) -> None:
        """A turn of each of these conversations, taken again where it was not ended."""
        turns = [self._turn(name) for name in names]
        started_s = time.monotonic()
        self._say(turns)
        if killed is not None:
            time.sleep(self._choices.uniform(0, LATE * self._round_s))
            self._kill(killed)
        foreseen = [self._spoken[turn.name].foreseen(turn) for turn in turns]
        answers = self._answer() if killed in (None, Killed.DAEMON) else {}
        if killed is None:
            self._round_s = time.monotonic() - started_s
        while foreseen := self._unsettled(foreseen, answers):
            self.tally.retaken += len(foreseen)
            self._say([one.turn for one in foreseen])
            answers = self._answer()

    def _turn(self, name: str) -> Turn:
        choices, count = self._choices, self._spoken[name].by_hand.llama.count
        kept = None
        if count > 1 and choices.random() < CUT_SHARE:
            bounds = sorted(
                choices.sample(range(count + 1), choices.choice([2, 2, 4]) if count > 2 else 2)
            )
            kept = tuple(range(*pair) for pair in zip(bounds[::2], bounds[1::2], strict=True))
            if sum(map(len, kept)) == count:
                kept = None
        return Turn(
            name=name,
            kept=kept,
            prompt=[choices.randrange(VOCABULARY) for _ in range(choices.randint(1, PROMPT_MAX))],
            new_tokens=choices.randint(1, NEW_TOKENS_MAX),
        )

    def _unsettled(self, foreseen: list[Foreseen], answers: Message) -> list[Foreseen]:
        """What has not happened; of turns without an answer the store itself tells."""
        doubtful = []
        for one in foreseen:
            answer = answers.get(one.turn.name, {"error": "no answer"})
            if "error" in answer:
                doubtful.append(one)
                continue
            self._heard(one, answer["answer"], answer["cuts"])
            self.tally.restored_tokens += answer["restored"]
            # The last token of an answer is computed with the next turn, so a first one lacks one.
            self.tally.recomputed_tokens += max(
                0, answer["computed"] - len(one.turn.prompt) - len(one.answer)
            )
        if not doubtful:
            return []
        found = self._told([one.turn.name for one in doubtful])
        return [again for one in doubtful if (again := self._settled(one, found[one.turn.name]))]

    def _settled(self, one: Foreseen, found: Message) -> Foreseen | None:
        """The rest of a turn that has not happened; None where it has."""
        spoken, turn = self._spoken[one.turn.name], one.turn
        if LOST_WORDS in found.get("error", ""):
            self.tally.lost += 1
            self._forget(turn.name)
            return None
        token_ids, before = found["token_ids"], [*spoken.token_ids, *turn.prompt]
        if len(token_ids) > len(spoken.token_ids):
            assert token_ids[: len(before)] == before
            self.tally.unheard += 1
            self._heard(one, token_ids[len(before) :], found["cuts"])
            return None
        assert token_ids == spoken.token_ids, (found, spoken.token_ids, self._log[-2000:])
        if found["cuts"] == spoken.cuts:
            return one
        assert turn.kept is not None
        assert found["cuts"] == spoken.cuts + 1
        spoken.has_cut(one)
        return spoken.foreseen(
            Turn(name=turn.name, kept=None, prompt=turn.prompt, new_tokens=turn.new_tokens)
        )

    def _heard(self, one: Foreseen, answer: list[int], cuts: int) -> None:
        spoken = self._spoken[one.turn.name]
        self.tally.cuts += cuts - spoken.cuts
        self.tally.turns += 1
        spoken.has_said(one, answer, cuts)

    def _forget(self, name: str) -> None:
        """A conversation that nothing can go on with; the next turn of its name begins one."""
        del self._spoken[name]
        self._client.sequences.delete(name)
        self._client.sequences.delete(f"{name}/tokens")

    def _lose_states(self) -> None:
        """Some or all states of a conversation are gone, as if others had needed the room."""
        info = self._client.sequences.get(self._choices.choice(sorted(self._spoken)))
        if info is None:
            return
        keys = [*info.keys, *filter(None, [info.tail_key])]
        self._client.delete(self._choices.sample(keys, self._choices.randint(0, len(keys))))

    def _fill(self, count: int) -> None:
        """Chunks of others come, so that the oldest of all go."""
        region = self._client.allocate(Placement.contiguous_bytes(FILLER, count))
        assert region is not None
        with region:
            chunks = [
                NewChunk(key=self._choices.randbytes(KEY_BYTES), token_count=CHUNK_TOKENS)
                for _ in range(count)
            ]
            self._client.put(FILLER, chunks, Placement.contiguous(region, FILLER), ack=Ack.DURABLE)

    def _say(self, turns: Sequence[Turn]) -> None:
        said = [
            {
                "name": turn.name,
                "kept": None if turn.kept is None else [[one.start, one.stop] for one in turn.kept],
                "prompt": turn.prompt,
                "new_tokens": turn.new_tokens,
            }
            for turn in turns
        ]
        self._voice.say({"turns": said})

    def _told(self, names: list[str]) -> Message:
        """What there is of conversations, as soon as the store answers again."""
        found: dict[str, Any] = {}
        answers: Any = ()

        def is_answered() -> bool:
            nonlocal answers
            missing = [name for name in names if name not in found]
            answers = self._asked({"told": missing}).items()
            found.update(
                {name: one for name, one in answers if LOST_WORDS in one.get("error", LOST_WORDS)}
            )
            return len(found) == len(names)

        try:
            wait_until(is_answered, within_s=SOON_S)
        except AssertionError as error:
            error.add_note(f"the last answers: {dict(answers)}")
            error.add_note(f"the engine's log: {self._log[-4000:]}")
            raise
        return found

    def _asked(self, question: Message) -> Message:
        self._voice.say(question)
        return self._answer()

    def _answer(self) -> Message:
        answer = self._voice.hear()
        if answer is None:
            self._engine.wait()
            raise AssertionError(f"the engine ended: {self._log[-4000:]}")
        return answer

    def _kill(self, killed: Killed) -> None:
        self.tally.kills += 1
        if killed is not Killed.ENGINE:
            self._daemon.kill()
        if killed is not Killed.DAEMON:
            self._engine.kill()
            self._engine.wait()
        if killed is not Killed.ENGINE:
            self._daemon.start()
        if killed is not Killed.DAEMON:
            self._engine = self._started()

    def _started(self) -> ForkedProcess:
        engine = self._template.fork(
            TALKER,
            self._log_path,
            socket=str(self._daemon.socket_path),
            directory=str(self._directory),
            voice=str(self._voice.path),
        )
        self._voice.meet()
        return engine

    @property
    def _log_path(self) -> Path:
        return self._daemon.folder / "engine.log"

    @property
    def _log(self) -> str:
        return self._log_path.read_text() if self._log_path.exists() else ""
