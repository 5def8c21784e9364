"""Which stored chunks to load in which order while the others are computed (Cake, section 4).

The order is a plan; where loading and computing meet shows while they run (``pointers``).
Gaps are nothing special: a chunk that is not stored is computed on the way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.source import Source

HOPELESS_RATIO = 32.0
"""A first chunk that is expected to take longer than this times computing everything is not loaded.

What is expected may be wrong: a try costs one chunk's read, and not to try may cost half of the
time. Where computing is believed to be four times as fast as it is and loading a quarter as fast,
a chunk that would help still seems to take sixteen times too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CakePlan:
    """What to load of one history.

    ``load_order`` are ranges of consecutive chunks in the order in which they are loaded,
    each from its end (``tail_first``), and ``load`` what that is expected to cost; none when
    not even one chunk would arrive in time.
    ``meeting_token`` is the first token that is expected to be loaded (the whole prompt's
    count when none is), ``duration_s`` the expected time until the prompt is computed.
    """

    source: Source
    load: LoadCost | None
    load_order: tuple[range, ...]
    meeting_token: int
    duration_s: float


def plan_cake(
    history: History,
    compute: ComputeCost,
    loads: Mapping[Source, LoadCost],
    *,
    token_budget: float,
) -> CakePlan:
    """The plan with the least expected duration over all meeting points and sources.

    Loading alone, computing alone and every mixture are among them, so none of them is
    expected to be faster. ``token_budget`` is what a step computes of this request. With no
    source in ``loads`` all is computed. A last chunk of which few tokens are used may be
    left out: computing them with the new tokens can be cheaper than its bytes.
    """
    alone_s = compute.compute_s(0, history.prompt_tokens, token_budget)
    best = CakePlan(
        source=Source.COMPUTE,
        load=None,
        load_order=(),
        meeting_token=history.prompt_tokens,
        duration_s=alone_s,
    )
    # The one whose chunk comes first in front: where none helps, that one is tried.
    for source, load in sorted(loads.items(), key=lambda item: item[1].first_s):
        for usable in (history, history.without_short_chunk()):
            stored = [chunk for chunks in usable.stored_ranges() for chunk in chunks]
            durations_s = _durations_s(usable, stored, compute, load, token_budget)
            least_s = min(durations_s, default=alone_s)
            if least_s < best.duration_s:
                chunk = stored[durations_s.index(least_s)]
            elif stored and best.load is None and load.first_s < HOPELESS_RATIO * alone_s:
                # Computing does not wait for a chunk that is only tried.
                chunk, least_s = stored[-1], alone_s
            else:
                continue
            best = CakePlan(
                source=source,
                load=load,
                load_order=load_order(usable, chunk),
                meeting_token=usable.chunk_first(chunk),
                duration_s=least_s,
            )
    return best


def load_order(history: History, meeting_chunk: int) -> tuple[range, ...]:
    """The stored chunks from ``meeting_chunk`` on, then those before it.

    Computation waits first for the range that it meets first: so that one leads, down to the
    meeting point; then the ranges behind it, in order. Then, if loading is faster than
    expected, the chunks below the meeting point, downwards. Without gaps this is the
    paper's order, from the last chunk to the first.
    """
    stored = history.stored_ranges()
    behind = [range(max(chunks.start, meeting_chunk), chunks.stop) for chunks in stored]
    before = [range(chunks.start, min(chunks.stop, meeting_chunk)) for chunks in reversed(stored)]
    order: list[range] = []
    for chunks in filter(len, behind + before):
        if order and chunks.stop == order[-1].start:
            order[-1] = range(chunks.start, order[-1].stop)
        else:
            order.append(chunks)
    return tuple(order)


def _durations_s(
    history: History,
    stored: list[int],
    compute: ComputeCost,
    load: LoadCost,
    token_budget: float,
) -> list[float]:
    """The expected duration when ``stored[index:]`` are loaded, for every index.

    Loading all but what is computed before, then what follows the last stored chunk. Gaps
    between stored chunks are taken to be computed while something is loaded.
    """
    if not stored:
        return []
    last_stop = history.chunk_first(stored[-1] + 1)
    last_s = compute.compute_s(last_stop, history.prompt_tokens, token_budget)
    edges = [history.chunk_first(chunk) for chunk in stored]
    # What is computed at least: the gaps between the stored chunks, and before the first.
    count, work_s = edges[0], compute.tokens_s(0, edges[0])
    for chunk, first in zip(stored, [*edges[1:], last_stop], strict=True):
        stop = history.chunk_first(chunk + 1)
        count += first - stop
        work_s += compute.tokens_s(stop, first)
    durations_s = []
    for index, (first, chunk) in enumerate(zip(edges, stored, strict=True)):
        loaded_count = len(stored) - index
        project_s = load.project_s * history.chunk_tokens
        steps_s = -(-count // token_budget) * compute.step_s
        busy_s = steps_s + work_s + loaded_count * project_s
        load_s = load.latency_s + loaded_count * load.chunk_s + project_s
        durations_s.append(max(busy_s, load_s) + last_s)
        stop = history.chunk_first(chunk + 1)
        count += stop - first
        work_s += compute.tokens_s(first, stop)
    return durations_s
