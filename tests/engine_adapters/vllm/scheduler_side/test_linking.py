"""Steps and jumps of a linked request: each token is computed, or was loaded before it is seen.

The simulated engine computes as vLLM does: from its position on, at most so many tokens in a step.
"""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.link.method import LinkMethod
from engine_adapters.vllm.messages.link_request import LinkRequest
from engine_adapters.vllm.scheduler_side.linking import LinkedChunk, Linking

CHUNK = 8


def linking_of(*entries: range, tokens: int, method: str = "attnlink-4") -> Linking:
    request = LinkRequest(entries, LinkMethod.named(method))
    return Linking(request, prompt_tokens=tokens, chunk_tokens=CHUNK)


@dataclass
class Run:
    """What was computed, and in which steps, when the load has ended after some of them."""

    computed: set[int]
    steps: list[range]


def run(
    linking: Linking,
    tokens: int,
    *,
    budget: int,
    loads: list[int],
    lost: tuple[int, ...] = (),
) -> Run:
    """Computes a prompt and two more tokens.

    The load is ordered with the first step; before each later one so many chunks have come.
    """
    steps: list[range] = []
    position = came = 0
    wanted = min(lost, default=len(linking.chunks))
    frontier = linking.chunks[0].first_token if linking.is_begun else tokens + 2
    for number in range(10 * tokens + len(loads)):
        if steps and linking.is_running and frontier < tokens + 2:
            came += loads[number] if number < len(loads) else 1
            if came >= wanted:
                linking.end_loading(lost)
                frontier = tokens + 2
            elif came:
                linking.loaded_to(came - 1)
                frontier = linking.chunks[came].first_token
        target = linking.jump_from(position)
        if target is not None:
            assert target < frontier, "it could compute nothing there"
            position = target
        if position >= tokens + 2:
            break
        count = linking.clipped(position, min(budget, tokens + 2 - position))
        if steps:
            assert count or frontier < tokens + 2, "it waits for nothing"
            assert not count or position + count <= frontier, "it sees what has not come"
        elif linking.is_begun:
            assert count, "it is not admitted"
            linking.run()
        steps.append(range(position, position + count))
        position += count
    else:
        raise AssertionError("the request does not end")
    return Run({token for step in steps for token in step}, steps)


@st.composite
def prompts(draw: st.DrawFn) -> tuple[list[range], int, list[int]]:
    """Entries, the length of the prompt, and how many chunks of each entry are stored."""
    entries: list[range] = []
    stored: list[int] = []
    first = 0
    for _ in range(draw(st.integers(1, 4))):
        first += draw(st.integers(0, 12))
        entry = range(first, first + draw(st.integers(1, 40)))
        entries.append(entry)
        stored.append(draw(st.integers(0, len(entry) // CHUNK)))
        first = entry.stop
    return entries, max(1, first + draw(st.integers(0, 12))), stored


METHODS = ["naive", "full", "attnlink-2", "attnlink-8", "attnlink-32"]


@given(
    prompt=prompts(),
    method=st.sampled_from(METHODS),
    budget=st.integers(1, 50),
    loads=st.lists(st.integers(0, 3), max_size=8),
    loses=st.booleans(),
    data=st.data(),
)
def test_every_token_is_computed_or_loaded(
    prompt: tuple[list[range], int, list[int]],
    method: str,
    budget: int,
    loads: list[int],
    loses: bool,
    data: st.DataObject,
) -> None:
    entries, tokens, stored = prompt
    linking = linking_of(*entries, tokens=tokens, method=method)
    lost: tuple[int, ...] = ()
    if linking.begin(stored) and loses:
        lost = (data.draw(st.integers(0, len(linking.chunks) - 1), label="lost"),)
    chunks = linking.chunks
    ran = run(linking, tokens, budget=budget, loads=loads, lost=lost)
    every = set(range(tokens + 2))
    loaded = {
        one.first_token + place
        for one in chunks[: lost[0] if lost else None]
        for place in range(CHUNK)
    }
    assert ran.computed | loaded == every
    expected = {token for part in linking.request.plan(tokens).computed for token in part}
    assert expected <= ran.computed
    held = {
        entry.start + place
        for entry, count in zip(entries, stored, strict=True)
        for place in range(count * CHUNK)
    }
    # Nothing else: but what is lost, what is not stored, and the token that admits the request.
    assert ran.computed <= expected | (held - loaded) | (every - held) | {0}
    assert linking.jumped_tokens == tokens + 2 - len(ran.computed)


def test_nothing_is_computed_from_the_first_chunk_on_while_it_is_loaded() -> None:
    linking = linking_of(range(5, 25), tokens=30)
    assert linking.begin([2])
    assert linking.chunks == (LinkedChunk(0, 0, 5), LinkedChunk(0, 1, 13))
    assert linking.clipped(0, 100) == 5
    linking.run()
    assert linking.clipped(5, 100) == 0
    assert linking.jump_from(5) is None
    linking.loaded_to(0)
    assert linking.clipped(5, 100) == 2
    assert linking.jump_from(7) is None
    assert linking.clipped(7, 100) == 0
    linking.end_loading(())
    # Two tokens after the boundary, then those before the next one, and what is not stored.
    assert linking.clipped(5, 100) == 2
    assert linking.jump_from(5) is None
    assert linking.jump_from(7) == 21
    assert linking.jumped_tokens == 14
    assert linking.clipped(21, 100) == 100


def test_a_request_that_waits_for_blocks_is_planned_once() -> None:
    linking = linking_of(range(5, 25), tokens=30)
    assert linking.begin([2])
    chunks = linking.chunks
    assert linking.begin([2])
    assert linking.chunks is chunks
    assert linking.begin([1])
    assert linking.chunks == chunks[:1]


def test_one_that_ran_is_planned_again_without_what_it_lost() -> None:
    linking = linking_of(range(5, 25), tokens=30)
    assert linking.begin([2])
    linking.run()
    linking.end_loading((0,))
    assert linking.begin([2])
    assert (linking.clipped(0, 100), linking.jump_from(5)) == (5, None)


def test_a_request_that_begins_computes_a_token() -> None:
    linking = linking_of(range(20), tokens=30)
    assert linking.begin([2])
    assert linking.clipped(0, 100) == 1
    linking.run()
    assert linking.clipped(1, 100) == 0


def test_chunks_that_are_computed_anyway_are_not_loaded() -> None:
    linking = linking_of(range(1, 25), tokens=30, method="attnlink-32")
    assert not linking.begin([3])
    assert not linking.is_begun
    assert linking.clipped(0, 100) == 100
    assert linking.jump_from(3) is None


def test_a_link_that_is_given_up_computes_all() -> None:
    linking = linking_of(range(20), tokens=30)
    assert linking.begin([2])
    linking.give_up()
    assert linking.clipped(0, 100) == 100
    assert linking.jump_from(1) is None
