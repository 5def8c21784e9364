"""How far to compute before the loaded chunks ahead (Cake, section 4 part 3)."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import zip_longest

from engine_adapters.restore.ranges import History
from engine_adapters.restore.recent import NO_DOUBT


def compute_stop(
    history: History,
    position: int,
    loadable: Sequence[range],
    *,
    compute_s: Callable[[int, int], float],
    wait_s: Callable[[int], float],
    project_s: float,
    doubt: float = NO_DOUBT,
) -> int:
    """The token up to which computing from ``position`` on is worth while now.

    ``loadable`` are the ranges of chunks ahead that are loaded or on their way. Of the first
    range the chunks from some chunk on are waited for and what lies before is computed, so
    that all of the range and what has to be computed behind it are ready first: that chunk's
    first token, or ``position`` when computing does not help before the chunk there. A range
    of which no chunk is worth its wait, or the step that ends before it, is computed, too;
    the next range is then looked at in the same way.

    ``compute_s`` is the time for a first and a stop token. ``wait_s`` is the time until a
    chunk and those behind it in its range have arrived, 0 if they have, so it never grows
    with the chunk. ``project_s`` is what each that has not keeps the compute side busy.
    What has arrived is used even where computing it as well seems faster, because a step less
    is needed, unless that is believed to be faster by more than ``doubt``.
    """

    def stop_before(chunks: range, gap_stop: int) -> int:
        gap_s = compute_s(history.chunk_first(chunks.stop), gap_stop)
        arrived = chunks.start + bisect_left(chunks, True, key=lambda chunk: wait_s(chunk) == 0)

        def computed_to(chunk: int) -> int:
            return max(position, history.chunk_first(chunk))

        def busy_s(chunk: int) -> float:
            return compute_s(position, computed_to(chunk)) + (arrived - chunk) * project_s

        def ready_s(chunk: int) -> float:
            loaded_s = wait_s(chunk) + project_s if chunk < arrived else 0.0
            return max(busy_s(chunk), loaded_s) + gap_s

        crossing = chunks.start + bisect_left(
            range(chunks.start, arrived), True, key=lambda chunk: busy_s(chunk) >= wait_s(chunk)
        )
        candidates = [chunk for chunk in (crossing - 1, crossing, arrived) if chunk in chunks]
        best = min(candidates, key=ready_s)
        alone_s = compute_s(position, gap_stop)
        if ready_s(best) < alone_s:
            return computed_to(best)
        if arrived in chunks and ready_s(arrived) < doubt * alone_s:
            return computed_to(arrived)
        return gap_stop

    for chunks, following in zip_longest(loadable, loadable[1:]):
        gap_stop = history.chunk_first(following.start) if following else history.prompt_tokens
        stop = stop_before(chunks, gap_stop)
        if stop < gap_stop:
            return stop
    return history.prompt_tokens
