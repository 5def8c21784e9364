"""Algorithm 1 of Cake's appendix A, as printed, under the virtual clock. Pure.

Nothing is shortened near the meeting and nothing is estimated: what differs between it and
our planner in the same cell is what the planner gains.
"""

from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.testing.virtual_reader import VirtualReader


def paper_algorithm_s(
    history: History, compute: ComputeCost, load: LoadCost, *, token_budget: int
) -> float:
    """Seconds until the first token when all chunks are stored."""
    reader = VirtualReader(
        range(history.chunk_count - 1, -1, -1),
        lambda *_: load.chunk_s,
        latency_s=load.latency_s,
    )
    resident: set[int] = set()
    now_s, position = 0.0, 0
    while position < history.prompt_tokens:
        resident.update(reader.advance(now_s, position // history.chunk_tokens)[0])
        stop = min(position + token_budget, history.prompt_tokens)
        chunks = history.chunks_behind(position)
        wanted = [chunk for chunk in chunks if history.chunk_first(chunk) < stop]
        if wanted and resident.issuperset(wanted):
            # All chunks behind were loaded before these, and one token is left to compute.
            return now_s + compute.compute_s(history.token_count, history.prompt_tokens, 1)
        now_s += compute.compute_s(position, stop, token_budget)
        position = stop
    return now_s
