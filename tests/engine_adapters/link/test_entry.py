import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.link.entry import (
    Entry,
    EntryTitle,
    entry_digest,
    entry_of_words,
    entry_words,
    namespace_tag,
)

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=8).map(tuple)
ENTRIES = st.builds(
    Entry,
    entry_id=st.just("cc-1"),
    token_ids=TOKENS,
    created_s=st.integers(1, 2**32 - 1),
    expires_s=st.none() | st.integers(1, 2**32 - 1),
    sink_ids=TOKENS,
)


@settings(max_examples=30)
@given(ENTRIES, st.data())
def test_words_tell_the_entry(entry: Entry, data: st.DataObject) -> None:
    words = entry_words(entry)
    assert entry_of_words("cc-1", words) == entry
    # Of what a writer did not finish nothing is told.
    cut = data.draw(st.integers(0, len(words) - 1))
    assert entry_of_words("cc-1", words[:cut]) is None


def test_the_last_time_of_expiry_counts() -> None:
    found = entry_of_words("cc-1", [1, 1000, 2, 5, 6, 2000, 3000])
    assert found is not None
    assert found.expires_s == 3000


def test_words_of_another_version_are_no_entry() -> None:
    assert entry_of_words("cc-1", [3, 1000, 2, 5, 6, 0]) is None


@pytest.mark.parametrize(("count", "tag"), [(None, None), (0, 16 * "b"), (17, 16 * "0")])
def test_a_title_is_a_name(count: int | None, tag: str | None) -> None:
    title = EntryTitle("cc-" + 24 * "1", 32 * "a", count, tag)
    assert EntryTitle.of_name(str(title)) == title


@pytest.mark.parametrize("name", ["", "cc-1.a", "cc-" + 24 * "1" + "." + 32 * "a" + ".x"])
def test_other_names_are_none(name: str) -> None:
    assert EntryTitle.of_name(name) is None


def test_namespaces_have_tags_of_their_own() -> None:
    assert len({namespace_tag(b""), namespace_tag(b"a"), namespace_tag(b"b")}) == 3


def test_whatever_differs_has_another_digest() -> None:
    digests = [
        entry_digest(tokens, sink, namespace=namespace, model=model)
        for tokens in ([1, 2], [1], [1, 2, 3])
        for sink in ([], [3], [2, 3])
        for namespace in (b"a", b"b")
        for model in ("m", "n")
    ]
    assert len(set(digests)) == len(digests)
