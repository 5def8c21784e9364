"""A conversation over SIGKILL of its engine and of the daemon, against one without a store.

The one without a store is computed token by token and cut by hand. A turn that was killed has
happened, or it has not: the conversation itself tells, and the same turn is taken again then.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.conversation.hand_cut import HandCutConversation
from tests.support.daemon import DaemonProcess
from tests.support.seeds import seed
from tests.system.talking import WINDOW

TURNS = 18
KILLS = 3
"""Of the engine, and every second time of the daemon as well; each costs a start with torch."""
LONGEST_PAUSE_S = 0.4


class Talker:
    """The engine process."""

    def __init__(self, daemon: DaemonProcess, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.talking", str(daemon.socket_path), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.hear() == {"ready": True}

    def say(self, prompt: list[int], new_tokens: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "new_tokens": new_tokens}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any] | None:
        """None when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    path = tmp_path_factory.mktemp("model")
    return path, write_llama(path, max_position_embeddings=WINDOW)


def test_kills_at_any_moment(checkpoint: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    directory, theirs = checkpoint
    choices = random.Random(seed())
    by_hand = HandCutConversation(theirs, window=WINDOW)
    kill_turns = set(choices.sample(range(1, TURNS), KILLS))
    told = killed = restored = 0
    with DaemonProcess(tmp_path) as daemon:
        talker = Talker(daemon, directory)
        for number in range(TURNS):
            prompt = [choices.randrange(97) for _ in range(choices.randint(1, 20))]
            new_tokens = choices.randint(1, 20)
            expected, _ = by_hand.turn(prompt, new_tokens)
            talker.say(prompt, new_tokens)
            answer = None
            if number in kill_turns:
                time.sleep(choices.uniform(0, LONGEST_PAUSE_S))
                if killed % 2 == 0:
                    daemon.kill()
                    daemon.start()
                talker.kill()
                killed += 1
                talker = Talker(daemon, directory)
            else:
                assert talker.hear() == {"told": told}
                answer = talker.hear()
                assert answer is not None
            if answer is None:
                # Whether it has happened: the next turn says what there is.
                answer = take_again(talker, prompt, new_tokens, told)
            if answer is not None:
                assert answer["answer"] == expected
                restored += answer["restored"]
            told += len(prompt) + new_tokens
        talker.kill()
    assert killed == KILLS
    assert by_hand.cut_count >= 2
    assert restored > TURNS * 20


def take_again(
    talker: Talker, prompt: list[int], new_tokens: int, told: int
) -> dict[str, Any] | None:
    """The answer to a turn that was killed; None where it has happened all the same."""
    talker.say([], 0)
    heard = talker.hear()
    assert heard is not None
    if heard["told"] != told:
        assert heard["told"] == told + len(prompt) + new_tokens
        return None
    talker.say(prompt, new_tokens)
    assert talker.hear() == {"told": told}
    return talker.hear()
