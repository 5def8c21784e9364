"""Conversations over SIGKILL of their engine and of the daemon, against ones without a store.

Those are computed token by token and cut by hand. A turn that was killed has happened, or it has
not: the conversation itself tells, and the same turn is taken again then.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from tests.engine_adapters.runner.checkpoints import write_llama
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.scale import Scale
from tests.support.seeds import seed
from tests.support.template import Template
from tests.system.talking import TALKER, WINDOW
from tests.system.talks_lab import TalksLab, overrides_for


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    path = tmp_path_factory.mktemp("model")
    return path, write_llama(path, max_position_embeddings=WINDOW)


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    """Engines are forked from it: each would need seconds for its imports."""
    with Template(TALKER.partition(":")[0]) as template:
        yield template


@pytest.mark.timeout(3000)
@labs.TALKS.scales("scale")
def test_kills_at_any_moment(
    checkpoint: tuple[Path, LlamaForCausalLM], template: Template, scale: Scale, tmp_path: Path
) -> None:
    talks, turns = labs.TALKS.size(scale), labs.TALK_TURNS.size(scale)
    kills = labs.TALK_KILLS.size(scale)
    with (
        DaemonProcess(tmp_path, overrides=overrides_for(talks)) as daemon,
        TalksLab(daemon, template, checkpoint, random.Random(seed())) as lab,
    ):
        lab.run(talks=talks, turns=turns, kills=kills)
        evicted = lab.evicted_chunks()
    tally = lab.tally
    sys.stdout.write(f"{tally}, {evicted} evicted\n")
    assert tally.kills == kills
    assert tally.turns + tally.lost == talks * turns
    assert tally.cuts > tally.turns // 10
    assert tally.restored_tokens > 10 * tally.turns
    assert tally.lost == 0
    # So few turns may find everything.
    if scale is not Scale.SMOKE:
        assert tally.recomputed_tokens > 0
        assert evicted > 0
        assert tally.unheard + tally.retaken > 0
