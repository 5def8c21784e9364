"""The part about what goes at once: a chunk, or a sequence as a whole."""

from collections.abc import Callable, Sequence
from enum import Enum

from benchmarks.benchmark import Settings
from benchmarks.report import Series, Summary
from benchmarks.tiering import paper
from benchmarks.tiering.constants import SERVICE_TURNS_PER_S, THINK_S
from benchmarks.tiering.contexts import contexts
from benchmarks.tiering.conversations import generate
from benchmarks.tiering.grid import Scale
from benchmarks.tiering.serving import Kind, serve
from benchmarks.tiering.show import show_trace
from benchmarks.tiering.tier import Tier
from benchmarks.tiering.trace import Request, read_trace
from benchmarks.tiering.whole_sequences import WholeSequences
from kvstored.tiers.policy.hit_density import HitDensityPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.protocol import EvictionPolicy

FIGURE = "lru_by_sequence_vs_by_chunk_min"
BLOCK_TOKENS = 256
UNCUT_TOKENS = 1 << 20
"""A window that no conversation overflows."""
SHARES = (0.02, 0.05, 0.2)
"""Capacities as parts of all blocks that there ever are."""
QUICK_SHARES = (0.05, 0.2)


class Unit(Enum):
    """A policy, and what it gives up at once."""

    LRU_CHUNK = "lru by chunk"
    LRU_SEQUENCE = "lru by sequence"
    DENSITY_CHUNK = "density by chunk"
    DENSITY_SEQUENCE = "density by sequence"

    @property
    def is_by_sequence(self) -> bool:
        """Whether it hears what a sequence uses together."""
        return self in {Unit.LRU_SEQUENCE, Unit.DENSITY_SEQUENCE}


def compare_units(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Replays the paper's conversations, and each trace that is named; raises BenchmarkError."""
    windows = {"conversations": paper.LLAMA_13B.window_tokens, "uncut": UNCUT_TOKENS}
    workloads = {
        name: conversation_requests(settings.seed, scale.sessions, window_tokens)
        for name, window_tokens in windows.items()
    }
    workloads |= {path.stem: read_trace(path) for path in settings.traces}
    shares = QUICK_SHARES if settings.quick else SHARES
    series: list[Series] = []
    ratios: list[float] = []
    for name, requests in workloads.items():
        count = len({block for request in requests for block in request.blocks})
        capacities = [max(1, round(share * count)) for share in shares]
        found: dict[str, list[float]] = {}
        for unit in Unit:
            with settings.console.status(f"{name}: {unit.value}"):
                found[unit.value] = [found_percent(requests, unit, one) for one in capacities]
            key = f"{name}_{unit.value.replace(' ', '_')}_percent"
            series.append(Series(key=key, unit="%", samples=tuple(found[unit.value])))
        show_trace(settings.console, f"{name}: blocks found in %", capacities, found)
        by_sequence, by_chunk = (found[unit.value] for unit in (Unit.LRU_SEQUENCE, Unit.LRU_CHUNK))
        ratios += [own / other for own, other in zip(by_sequence, by_chunk, strict=True) if other]
    figure = Series(
        key=FIGURE, unit="x", samples=tuple(ratios), summary=Summary.LEAST, is_figure=True
    )
    return (*series, figure)


def conversation_requests(seed: int, sessions: int, window_tokens: int) -> list[Request]:
    """The paper's conversations as requests for blocks, in the order in which their turns start.

    A block is there when all its tokens are. What overflows the window is not asked for.
    """
    talks = generate(seed, count=sessions, sessions_per_s=paper.SESSIONS_PER_S)
    served = serve(talks, turns_per_s=SERVICE_TURNS_PER_S, think_s=THINK_S, seed=seed)
    kept = [contexts(each.turns, window_tokens) for each in talks]
    requests = []
    for event in served.events:
        if event.kind is Kind.START:
            turns = talks[event.conversation].turns[: event.turn + 1]
            last = sum(min(tokens, window_tokens) for tokens in turns) // BLOCK_TOKENS
            first = max(0, last - kept[event.conversation][event.turn].token_count // BLOCK_TOKENS)
            # A million blocks are more than any conversation has.
            base = event.conversation * 1_000_000
            blocks = tuple(range(base + first, base + last))
            requests.append(Request(arrival_s=event.time_s, tokens=turns[-1], blocks=blocks))
    return requests


def found_percent(requests: Sequence[Request], unit: Unit, capacity_blocks: int) -> float:
    """Blocks that are found with all before them, in percent of all that are asked for."""
    makers: dict[Unit, Callable[[], EvictionPolicy[int]]] = {
        Unit.LRU_CHUNK: LruPolicy,
        Unit.LRU_SEQUENCE: LruPolicy,
        Unit.DENSITY_CHUNK: HitDensityPolicy,
        Unit.DENSITY_SEQUENCE: lambda: WholeSequences(HitDensityPolicy()),
    }
    tier: Tier[int] = Tier(makers[unit](), capacity_blocks)
    found = asked = 0
    for request in requests:
        blocks = request.blocks
        known = next((n for n, block in enumerate(blocks) if block not in tier), len(blocks))
        found += known
        asked += len(blocks)
        if unit.is_by_sequence:
            tier.policy.touch(blocks, together=True)
        for block in blocks:
            if block not in tier:
                tier.put(block, 1)
            elif not unit.is_by_sequence:
                tier.policy.touch((block,))
        if unit.is_by_sequence and known < len(blocks):
            tier.policy.touch(blocks, together=True)
    return 100 * found / max(1, asked)
