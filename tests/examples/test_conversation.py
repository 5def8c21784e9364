"""``make demo`` on a small scale, and what it calls a failure."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engine_adapters.restore import ComputeCost, load_profile, save_profile
from examples.conversation import both_ends, job, repeated
from examples.conversation.__main__ import faults, main, make_meeting_table, make_table
from examples.conversation.both_ends import BothEnds
from examples.conversation.job import Turn
from examples.conversation.repeated import Repeated, Run, oracle_s
from examples.conversation.runner_process import StoreUse, TurnResult, calibrate
from tests.support.scale import Scale, at


def result(
    *, restored: int = 64, generated: tuple[int, ...] = (1, 2), dropped: int = 0
) -> TurnResult:
    return TurnResult(
        restored_tokens=restored,
        computed_tokens=10,
        device_bytes=1,
        dram_bytes=1,
        ttft_s=0.1,
        generated_ids=generated,
        dropped_tokens=dropped,
    )


def turn(number: int, stored: TurnResult) -> Turn:
    return Turn(number=number, history_tokens=100, stored=stored, recomputed=result(restored=0))


def test_a_good_job_has_no_faults() -> None:
    turns = [turn(1, result(restored=0)), turn(2, result()), turn(3, result())]
    assert faults(turns) == []
    assert make_table(turns).row_count == 3


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        (result(generated=(1, 3)), "other tokens"),
        (result(restored=0), "restored nothing"),
        (result(dropped=2), "2 tokens of turn 2 could not be saved"),
    ],
)
def test_every_fault_is_named(stored: TurnResult, fault: str) -> None:
    (found,) = faults([turn(1, result(restored=0)), turn(2, stored)])
    assert fault in found


@pytest.mark.parametrize(("meeting_token", "shown"), [(36, "token 36"), (None, "-")])
def test_both_ends_are_shown_beside_each_alone(meeting_token: int | None, shown: str) -> None:
    both = replace(result(restored=64), meeting_token=meeting_token)
    ends = BothEnds(
        bytes_per_s=5e6,
        history_tokens=100,
        both=both,
        loaded=result(restored=100),
        computed=result(restored=0),
    )
    table = make_meeting_table(ends)
    cells = [list(column.cells) for column in table.columns]
    assert cells[1:4] == [["64", "100", "0"], ["36", "0", "100"], [shown, "-", "-"]]
    assert ends.tokens_equal
    assert not replace(ends, loaded=result(generated=(9,))).tokens_equal


@pytest.mark.parametrize(
    ("history_tokens", "loaded", "fault"),
    [
        (4000, 1000, None),
        (4000, 0, "loaded nothing"),
        (4000, 4000, "computed nothing"),
        (100, 0, None),
        (100, 100, None),
    ],
)
def test_an_end_that_did_nothing_went_unnoticed(
    history_tokens: int, loaded: int, fault: str | None
) -> None:
    ends = BothEnds(
        bytes_per_s=5e6,
        history_tokens=history_tokens,
        both=result(restored=loaded),
        loaded=result(restored=history_tokens),
        computed=result(restored=0),
    )
    found = both_ends.faults(ends)
    assert len(found) == (fault is not None)
    assert (fault or "") in "".join(found)
    other = replace(ends, computed=result(generated=(9,)))
    assert "other tokens" in both_ends.faults(other)[0]


def test_nothing_need_be_restored_where_nothing_is_stored() -> None:
    recomputed = TurnResult(**{**asdict(result(restored=0)), "schedule": "8 RE"})
    assert faults([turn(1, recomputed), turn(2, recomputed)]) == []
    mixed = TurnResult(**{**asdict(result(restored=0)), "schedule": "7 H + 1 RE"})
    assert len(faults([turn(1, mixed), turn(2, mixed)])) == 1


def test_repeated_runs_tell_the_worst_and_the_one_in_the_middle() -> None:
    def run(both_s: float, loaded_s: float, computed_s: float) -> Run:
        return Run(
            both=replace(result(), ttft_s=both_s),
            loaded=replace(result(), ttft_s=loaded_s),
            computed=replace(result(), ttft_s=computed_s),
            oracle_s=0.5,
        )

    runs = (run(0.6, 1.0, 1.2), run(1.1, 1.0, 0.8), run(0.5, 1.0, 2.0))
    found = Repeated(runs=runs, is_disturbed=True)
    assert found.over_better_max == pytest.approx(1.1 / 0.8)
    assert found.over_oracle_median == pytest.approx(1.2)
    assert "3 runs beside a process" in found.sentence()
    assert "1.375" in found.sentence()
    assert "beside" not in replace(found, is_disturbed=False).sentence()
    assert repeated.faults(found) == []
    other = replace(runs[0], loaded=result(generated=(9,)))
    assert "1 runs" in repeated.faults(replace(found, runs=(other, runs[1])))[0]


def test_the_oracle_knows_that_later_tokens_attend_to_more() -> None:
    def best_s(attention_s: float, *, loaded_s: float) -> float:
        cost = ComputeCost(step_s=0.0, token_s=1.0, attention_s=attention_s)
        return oracle_s(
            cost, computed_s=10.0, loaded_s=loaded_s, history_tokens=640, prompt_tokens=640
        )

    # Five of ten chunks are computed while five are loaded.
    assert best_s(0.0, loaded_s=10.0) == pytest.approx(5.0)
    assert best_s(0.01, loaded_s=10.0) < 4.9
    assert best_s(0.0, loaded_s=1e6) == pytest.approx(10.0)


def calibrated_for_the_store(*, model: Path, store: StoreUse) -> None:
    """Measures as the demo does; then steps count as so dear that every history is loaded.

    By costs that were measured while the machine was busy nothing might be stored, or restored.
    """
    calibrate(model=model, store=store)
    measured = load_profile(store.profile)
    dear = replace(measured, compute_constant_s=10.0, read_bytes_per_s=1e9, read_latency_s=0.0)
    save_profile(store.profile, dear)


@at(Scale.QUICK)
def test_the_demo_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "calibrate", calibrated_for_the_store)
    options = ["--document-tokens", "300", "--new-tokens", "4", "--device-gib", "0.25"]
    file = tmp_path / "demo.json"
    folder = ("--folder", str(tmp_path / "demo"))
    options += ["--runs", "1"]
    arguments = ["demo", *folder, "--kv-heads", "2", "--json", str(file), *options]
    monkeypatch.setattr(sys, "argv", arguments)
    assert main() == 0
    assert "generated the same tokens as without a store" in " ".join(
        capsys.readouterr().out.split()
    )
    measured = json.loads(file.read_text())
    assert measured["commit"]
    assert [turn["number"] for turn in measured["turns"]] == [1, 2, 3]
    last = measured["turns"][-1]
    assert last["gain"] == last["recomputed"]["ttft_s"] / last["stored"]["ttft_s"]
    assert last["stored"]["restored_tokens"] > 0
    assert measured["both_ends"]["loaded"]["restored_tokens"] > 0
    assert "generated_ids" not in last["stored"]
    assert all(turn["tokens_equal"] for turn in measured["overflow"]["turns"])
    assert sum(turn["dropped_tokens"] for turn in measured["overflow"]["turns"]) > 0
    linked = {each["method"]: each for each in measured["linked"]["answers"]}
    assert linked["attnlink-16"]["answer"] == measured["linked"]["expected"]
    assert linked["naive"]["restored_tokens"] > linked["full"]["restored_tokens"] == 0
    assert not measured["repeated"]["is_disturbed"]
    (run,) = measured["repeated"]["runs"]
    assert run["tokens_equal"]
    assert run["over_better"] == measured["repeated"]["over_better_max"] > 0
    assert run["loaded"]["restored_tokens"] > run["computed"]["restored_tokens"] == 0


def test_a_model_that_is_none_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["demo", "--folder", str(tmp_path / "demo"), "--model", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--device-gib", "0.25"])
    assert main() == 2
    assert "tokenizer.json" in capsys.readouterr().out
