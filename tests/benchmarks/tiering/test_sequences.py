"""What goes at once, compared at a tiny size."""

from pathlib import Path

import pytest

from benchmarks.tiering import run
from benchmarks.tiering.grid import Scale
from benchmarks.tiering.sequences import Unit, conversation_requests, found_percent
from benchmarks.tiering.trace import Request
from benchmarks.tiering.whole_sequences import WholeSequences
from kvstored.tiers.policy.lru import LruPolicy
from tests.benchmarks.tiering.test_run import settings, write_trace


def asked(*prompts: str) -> list[Request]:
    return [
        Request(arrival_s=number, tokens=1, blocks=tuple(map(ord, blocks)))
        for number, blocks in enumerate(prompts)
    ]


@pytest.mark.parametrize("unit", Unit)
def test_only_by_sequence_the_beginning_is_left(unit: Unit) -> None:
    """After the last put one block of the first sequence has to go."""
    found = found_percent(asked("abc", "def", "abc"), unit, 5)
    expected = 100 * 2 / 9 if unit.is_by_sequence else 0
    assert found == pytest.approx(expected)


def test_blocks_of_a_conversation_go_on_and_leave_its_window() -> None:
    requests = conversation_requests(1, 60, 4096)
    assert len(requests) > 60
    by_talk: dict[int, list[tuple[int, ...]]] = {}
    for request in requests:
        if request.blocks:
            by_talk.setdefault(request.blocks[0] // 1_000_000, []).append(request.blocks)
    ends = [[blocks[-1] for blocks in turns] for turns in by_talk.values()]
    assert all(own == sorted(own) for own in ends)
    assert all(len(blocks) <= 16 for turns in by_talk.values() for blocks in turns)
    assert any(turns[0][0] != turns[-1][0] for turns in by_talk.values())
    uncut = [one.blocks for one in conversation_requests(1, 60, 1 << 20) if one.blocks]
    assert all(blocks[0] % 1_000_000 == 0 for blocks in uncut)
    assert max(map(len, uncut)) > 16


def test_a_sequence_is_one_key_of_the_base() -> None:
    policy: WholeSequences[str] = WholeSequences(LruPolicy())
    for key in "abcdex":
        policy.insert(key, 0)
    policy.touch("abc", together=True)
    policy.touch("ade", together=True)
    policy.touch("b")
    assert list(policy.victims()) == list("cbedax")
    policy.touch("bc", together=True)
    assert list(policy.victims(0)) == list("edacbx")
    policy.insert("b", 0)
    for key in "adez":
        policy.remove(key)
    policy.touch("z", together=True)
    policy.hint({"c": 1})
    assert (list(policy.victims()), policy.is_queued("c")) == (list("cbx"), False)


def test_the_part_compares_both_workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK", Scale(sessions=30))
    trace = write_trace(tmp_path / "small.jsonl")
    chosen = settings(tmp_path, parts=(run.SEQUENCES,), traces=(trace,))
    series = run.run(chosen)
    assert [one.key for one in series if one.is_figure] == list(run.PARTS[run.SEQUENCES])
    assert len(series) == 3 * len(Unit) + 1
