import pytest

from engine_adapters.vllm.settings.options import AdapterOptions, OptionError, RestoreMode


def test_empty_document_is_the_default() -> None:
    assert AdapterOptions.parse({}) == AdapterOptions()


def test_values_are_taken() -> None:
    options = AdapterOptions.parse(
        {"mode": "cake", "arena_bytes": "1GiB", "saves": False, "lease_ms": 0}
    )
    assert options.mode is RestoreMode.CAKE
    assert options.arena_bytes == "1GiB"
    assert not options.saves
    assert options.lease_ms == 0


def test_times_in_seconds() -> None:
    options = AdapterOptions(match_wait_ms=2, match_timeout_ms=300, load_timeout_ms=4000)
    assert options.least_wait_s == 0.02
    assert (options.match_wait_s, options.match_timeout_s, options.load_timeout_s) == (
        0.002,
        0.3,
        4.0,
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"sokcet": "x"}, "unknown key 'sokcet'"),
        (
            {"mode": "fast"},
            "mode is 'fast'; it must be one of off, prefix, cake, hcache, pic, auto",
        ),
        ({"span_bytes": 0}, "span_bytes is 0"),
        ({"lease_ms": -1}, "lease_ms is -1"),
        ({"least_wait_ms": -1}, "least_wait_ms is -1; it must not be negative"),
        ({"lease_ms": 600_001}, "lease_ms is 600001; it must be at most 600000"),
        ({"load_timeout_ms": 700_000}, "load_timeout_ms is 700000; it must be at most 600000"),
        ({"saves": 1}, "saves is 1; it must be true or false"),
        ({"lease_ms": True}, "lease_ms is True; it must be a whole number"),
        ({"socket": 3}, "socket is 3; it must be a text"),
        ({"arena_bytes": 1.5}, "arena_bytes is 1.5; it must be a size"),
    ],
)
def test_nonsense_is_named(document: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        AdapterOptions.parse(document)


@pytest.mark.parametrize(("block", "chunk"), [(16, 64), (32, 64), (48, 96), (128, 128)])
def test_chunk_is_the_least_multiple_of_a_block(block: int, chunk: int) -> None:
    assert AdapterOptions().chunk_tokens_for(block) == chunk


def test_chunk_must_fit_the_block() -> None:
    assert AdapterOptions(chunk_tokens=96).chunk_tokens_for(32) == 96
    with pytest.raises(OptionError, match="a multiple of the engine's block of 64"):
        AdapterOptions(chunk_tokens=96).chunk_tokens_for(64)
