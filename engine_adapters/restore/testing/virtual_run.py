"""The planner of ``engine_adapters.restore`` under a virtual clock. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

from engine_adapters.restore.cake import CakePlan
from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.decision import Action
from engine_adapters.restore.pointers import Pointers
from engine_adapters.restore.ranges import History, TokenRange
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.testing.virtual_reader import VirtualReader

POLL_S = 0.005
"""How often an engine that waits looks at the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualMachine:
    """What steps and reads really take; each is asked at the virtual time when it begins.

    ``step_s(first, token_count, now_s)`` is a step with these tokens of the request, maybe
    none; ``chunk_s(chunk, now_s)`` a read, infinite for a chunk that is lost at once;
    ``budget(now_s)`` the tokens that a step may have.
    """

    step_s: Callable[[int, int, float], float]
    chunk_s: Callable[[int, float], float]
    budget: Callable[[float], int]
    latency_s: float = 0.0
    project_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a virtual restoration went: which tokens were computed and which loaded, when.

    ``waited_s`` is how long the last tokens of the history were waited for, ``rest_s`` what
    computing the tokens behind it took.
    """

    duration_s: float = 0.0
    waited_s: float = 0.0
    rest_s: float = 0.0
    read_chunks: int = 0
    computed: list[TokenRange] = field(default_factory=list)
    loaded: list[TokenRange] = field(default_factory=list)


def restore(
    history: History,
    plan: CakePlan,
    expected: ComputeCost,
    machine: VirtualMachine,
    *,
    rates: Rates,
) -> Outcome:
    """Runs until every token of the prompt has its states and the last one is computed.

    ``expected`` and the plan are what the planner believes, ``machine`` what is true.
    Raises RuntimeError when the planner waits for something that will never happen.
    """
    pointers = Pointers(history, plan, expected, rates=rates, now_s=0.0)
    order = [chunk for chunks in plan.load_order for chunk in reversed(chunks)]
    reader = VirtualReader(order, machine.chunk_s, latency_s=machine.latency_s)
    outcome = Outcome()
    now_s = 0.0
    while True:
        arrived, lost = reader.advance(now_s, pointers.reached_chunks)
        pointers.observe(now_s, arrived=arrived, lost=lost)
        pointers.take(arrived)
        now_s += sum(chunk >= pointers.reached_chunks for chunk in arrived) * (
            machine.project_s * history.chunk_tokens
        )
        budget = machine.budget(now_s)
        decision = pointers.decide(budget)
        tokens = decision.tokens
        if decision.action is Action.DONE:
            break
        if decision.action is Action.JUMP:
            outcome.loaded.append(tokens)
            pointers.jump(tokens.token_count)
        elif decision.action is Action.COMPUTE or not budget:
            pointers.begin_step(tokens.token_count)
            duration_s = machine.step_s(tokens.first, tokens.token_count, now_s)
            now_s += duration_s
            if tokens.token_count:
                outcome.computed.append(tokens)
                pointers.end_step(tokens.token_count, duration_s)
            if tokens.stop > history.token_count:
                outcome.rest_s += duration_s
            else:
                outcome.waited_s = 0.0
        elif reader.is_idle:
            raise RuntimeError(f"the planner waits at token {tokens.first} for nothing")
        else:
            until_s = max(now_s, min(now_s + POLL_S, reader.next_s))
            outcome.waited_s += until_s - now_s
            now_s = until_s
    outcome.duration_s = now_s
    outcome.read_chunks = reader.read_count
    return outcome
