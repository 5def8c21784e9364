"""What a request says of its entries, and which of their tokens are computed."""

import pytest

from engine_adapters.link.method import LinkMethod
from engine_adapters.vllm.messages.link_request import LinkRequestError, link_request


@pytest.mark.parametrize(
    "parameters",
    [None, {}, 5, "entries", ["entries"], {"do_remote_prefill": False}, {"link": "naive"}],
)
def test_others_requests_name_no_entries(parameters: object) -> None:
    assert link_request(parameters, prompt_tokens=10) is None


def test_entries_are_ranges_of_the_prompt() -> None:
    found = link_request({"entries": [[2, 5], (5, 9)]}, prompt_tokens=10)
    assert found is not None
    assert found.entries == (range(2, 5), range(5, 9))
    assert found.method == LinkMethod.named("attnlink-16")
    chosen = link_request({"entries": [[2, 9]], "link": "attnlink-2"}, prompt_tokens=10)
    assert chosen is not None
    assert chosen.plan(10).computed == (range(3), range(8, 10))


def test_without_entries_all_is_computed() -> None:
    found = link_request({"entries": []}, prompt_tokens=10)
    assert found is not None
    assert found.plan(10).computed == (range(10),)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"entries": 5}, "must be a list"),
        ({"entries": "all"}, "must be a list"),
        ({"entries": [[3, 3]]}, "an entry is [3, 3]"),
        ({"entries": [[-1, 3]]}, "an entry is [-1, 3]"),
        ({"entries": [["a", 3]]}, "an entry is ['a', 3]"),
        ({"entries": [3]}, "an entry is 3"),
        ({"entries": [[4, 8], [2, 5]]}, "overlap"),
        ({"entries": [[4, 8], [7, 9]]}, "overlap"),
        ({"entries": [[0, 1]] * 2000}, "names 2000 entries"),
        ({"entries": [list(range(100_000))]}, "an entry is [0, 1, 2, 3, 4, 5, ...]"),
        ({"entries": [[4, 11]]}, "ends at token 11 of a prompt of 10"),
        ({"entries": [[4, 8]], "link": "attnlink-3"}, "attnlink-3"),
        ({"entries": [[4, 8]], "link": 7}, "7"),
        ({"entries": [[4, 8]], "link": "query-4"}, "query-4 chooses tokens"),
        ({"entries": [[4, 8]], "link": "cacheblend-15"}, "cacheblend-15 chooses tokens"),
    ],
)
def test_what_cannot_be_linked_is_named(parameters: dict[str, object], said: str) -> None:
    with pytest.raises(LinkRequestError) as caught:
        link_request(parameters, prompt_tokens=10)
    assert said in str(caught.value)
