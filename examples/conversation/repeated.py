"""The comparison of both ends many times, each way by a new process; beside other work if wanted.

One run says little on a machine whose cores others use as well.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median

from benchmarks.kit.daemon_process import DaemonProcess
from benchmarks.kit.other_work import other_work
from engine_adapters.restore import ComputeCost, Mode, load_profile
from engine_adapters.restore.testing.oracle import best_meeting, elapsed_s
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from examples.conversation.both_ends import ALONE_WAIT_S, LastTurn, Limited, run_last
from examples.conversation.runner_process import StoreUse, TurnResult

SEED = 1
"""Of the order of the ways, and of when the other process works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The turn in all three ways, and what the best meeting point would have taken."""

    both: TurnResult
    loaded: TurnResult
    computed: TurnResult
    oracle_s: float

    @property
    def over_better(self) -> float:
        """From both ends over the faster one of both ends alone."""
        return self.both.ttft_s / min(self.loaded.ttft_s, self.computed.ttft_s)

    @property
    def over_oracle(self) -> float:
        """From both ends over the best meeting point."""
        return self.both.ttft_s / self.oracle_s

    @property
    def tokens_equal(self) -> bool:
        """Whether all three generated the same tokens."""
        return self.both.generated_ids == self.loaded.generated_ids == self.computed.generated_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """All runs; at least one."""

    runs: tuple[Run, ...]
    is_disturbed: bool

    @property
    def over_better_max(self) -> float:
        """Of the worst run."""
        return max(run.over_better for run in self.runs)

    @property
    def over_oracle_median(self) -> float:
        """Of the run in the middle."""
        return median(run.over_oracle for run in self.runs)

    def sentence(self) -> str:
        """What came of it, for people."""
        where = " beside a process that keeps a core busy half of the time"
        return (
            f"{len(self.runs)} runs{where if self.is_disturbed else ''}: from both ends took at "
            f"most {self.over_better_max:.3f} of the better end alone, and "
            f"{self.over_oracle_median:.3f} of the best meeting point in the median."
        )


def faults(repeated: Repeated) -> list[str]:
    """What is wrong, one sentence each."""
    wrong = sum(not run.tokens_equal for run in repeated.runs)
    return [f"{wrong} runs from both ends, or loaded alone, generated other tokens"] * bool(wrong)


def repeat(
    turn: LastTurn,
    store: StoreUse,
    limited: Limited,
    *,
    run_count: int,
    is_disturbed: bool,
    report: Callable[[str], None],
) -> Repeated:
    """Takes the turn each way in each run, in an order that is drawn; nothing is saved."""
    generator = Random(SEED)
    cost = ComputeCost.of_profile(load_profile(store.profile), limited.layer_count)
    prompt_tokens = len(json.loads(turn.token_file.read_text()))
    use = replace(store, socket=limited.daemon.socket, saves=False)
    ways = {
        "both": replace(use, mode=Mode.CAKE),
        "loaded": replace(use, mode=Mode(limited.source), least_wait_s=ALONE_WAIT_S),
        "computed": None,
    }

    def runs(process: DaemonProcess) -> Iterator[Run]:
        for number in range(1, run_count + 1):
            found = {}
            for way in generator.sample(sorted(ways), len(ways)):
                # Nothing is in DRAM.
                process.restart()
                report(f"run {number} of {run_count}: {way}")
                found[way] = run_last(turn, ways[way])
            best_s = oracle_s(
                cost,
                computed_s=found["computed"].ttft_s,
                loaded_s=found["loaded"].ttft_s,
                history_tokens=limited.history_tokens,
                prompt_tokens=prompt_tokens,
            )
            yield Run(oracle_s=best_s, **found)

    with (
        DaemonProcess(limited.daemon) as process,
        other_work(SEED) if is_disturbed else nullcontext(),
    ):
        return Repeated(runs=tuple(runs(process)), is_disturbed=is_disturbed)


def oracle_s(
    cost: ComputeCost,
    *,
    computed_s: float,
    loaded_s: float,
    history_tokens: int,
    prompt_tokens: int,
) -> float:
    """The least time to the first token of any meeting point, by what both ends took alone.

    Computing alone took ``computed_s`` and loading alone ``loaded_s``, both to the first token.
    ``cost`` says in which proportion the tokens share the first: later ones attend to more.
    """
    share = computed_s / cost.tokens_s(0, prompt_tokens)
    until_s = partial(cost.tokens_s, 0)
    rest_s = share * (until_s(prompt_tokens) - until_s(history_tokens))
    chunk_count = history_tokens // CHUNK_TOKENS
    chunk_s = max(0.0, loaded_s - rest_s) / chunk_count
    meeting = best_meeting(
        [share * until_s(chunk * CHUNK_TOKENS) for chunk in range(chunk_count + 1)],
        elapsed_s([chunk_s] * chunk_count),
    )
    return min(computed_s, meeting.duration_s + rest_s)
