from dataclasses import replace

import pytest

from engine_adapters.vllm.identity.chunk_keys import KeyChain, Medium, RequestIdentity, rank_key

PLAIN = RequestIdentity()
TOKENS = list(range(20))


def keys(
    tokens: list[int] = TOKENS,
    *,
    namespace: str = "n",
    fingerprint: str = "f",
    identity: RequestIdentity = PLAIN,
) -> list[bytes]:
    chain = KeyChain(
        namespace=namespace, fingerprint=fingerprint, identity=identity, chunk_tokens=4
    )
    return list(chain.extend(tokens))


def test_incomplete_chunk_has_no_key() -> None:
    assert len(keys(TOKENS[:11])) == 2


def test_chain_grows_as_if_made_at_once() -> None:
    chain = KeyChain(namespace="n", fingerprint="f", identity=PLAIN, chunk_tokens=4)
    for stop in (3, 9, 20):
        chain.extend(TOKENS[:stop])
    assert list(chain.extend(TOKENS)) == keys()


def test_change_of_a_token_changes_all_that_follows() -> None:
    changed = TOKENS.copy()
    changed[5] = 99
    same = [ours == theirs for ours, theirs in zip(keys(), keys(changed), strict=True)]
    assert same == [True, False, False, False, False]


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "m"},
        {"fingerprint": "g"},
        {"identity": replace(PLAIN, adapter=b"lora")},
        {"identity": replace(PLAIN, salt="mine")},
    ],
)
def test_whose_states_differ_shares_nothing(other: dict[str, object]) -> None:
    assert not set(keys()) & set(keys(**other))  # type: ignore[arg-type]


def test_field_boundaries_count() -> None:
    """Without lengths "ab" + "c" would be "a" + "bc"."""
    assert keys(namespace="ab", fingerprint="c") != keys(namespace="a", fingerprint="bc")


def test_medium_changes_the_chunks_from_its_own_on() -> None:
    image = Medium(content=b"cat", first_token=6, token_count=4)
    other = replace(image, content=b"dog")
    with_cat = keys(identity=replace(PLAIN, media=(image,)))
    with_dog = keys(identity=replace(PLAIN, media=(other,)))
    assert with_cat[0] == with_dog[0] == keys()[0]
    assert not set(with_cat[1:]) & set(with_dog[1:])


def test_place_of_a_medium_counts() -> None:
    image = Medium(content=b"cat", first_token=5, token_count=2)
    moved = replace(image, first_token=6)
    assert (
        keys(identity=replace(PLAIN, media=(image,)))[1]
        != keys(identity=replace(PLAIN, media=(moved,)))[1]
    )


def test_only_tokens_and_adapters_are_told() -> None:
    """An event of a salted or an illustrated request would offer its chunks to everyone."""
    image = Medium(content=b"cat", first_token=6, token_count=4)
    assert PLAIN.is_told
    assert replace(PLAIN, adapter=b"lora").is_told
    assert not replace(PLAIN, salt="mine").is_told
    assert not replace(PLAIN, media=(image,)).is_told


def test_ranks_store_under_keys_of_their_own() -> None:
    (key, *_) = keys()
    assert len({key, rank_key(key, b"rank 0"), rank_key(key, b"rank 1")}) == 3
