from dataclasses import fields, replace
from typing import Any

import pytest

from engine_adapters.restore import SPREAD_UNKNOWN, CostProfile, ProfileError, Sample, Source

PROFILE = CostProfile(
    model="Llama2-7B",
    machine="1 x A100",
    measured_at_s=1000.0,
    hidden_bytes=8192,
    kv_bytes=16384,
    compute_token_s=2e-6,
    compute_square_s=1e-10,
    compute_constant_s=5e-5,
    project_token_s=3e-7,
    project_constant_s=1e-5,
    load_token_s=4e-8,
    load_constant_s=2e-6,
    read_bytes_per_s=26e9,
    read_latency_s=2e-4,
)
ENCODED = replace(
    PROFILE,
    codec="int8",
    decode_hidden_token_s=2e-6,
    decode_kv_token_s=3e-6,
    planned_tokens=8192,
)


def test_costs_of_a_history() -> None:
    costs = PROFILE.costs(1000)
    assert costs.io_hidden_s == pytest.approx(8192e3 / 26e9 + 2e-4)
    assert costs.io_kv_s == pytest.approx(16384e3 / 26e9 + 2e-4)
    assert costs.compute_s == pytest.approx(2e-3 + 1e-4 + 5e-5)
    assert costs.project_s == pytest.approx(3e-4 + 1e-5)
    assert costs.load_s == pytest.approx(4e-5 + 2e-6)
    assert PROFILE.take_token_s(Source.HIDDEN) == 3e-7
    assert PROFILE.take_token_s(Source.KV) == 4e-8
    with pytest.raises(ValueError, match="at least 1 token, not 0"):
        PROFILE.costs(0)


def test_loading_encoded_states_takes_the_longer_of_reading_and_decoding() -> None:
    """For 1000 tokens: reads take 0.5 and 0.8 ms, decoding 2 and 3 ms."""
    costs = ENCODED.costs(1000, codec="int8")
    assert costs.io_hidden_s == pytest.approx(2e-3)
    assert costs.io_kv_s == pytest.approx(3e-3)
    assert replace(costs, io_hidden_s=1.0, io_kv_s=1.0) == replace(
        PROFILE.costs(1000), io_hidden_s=1.0, io_kv_s=1.0
    )
    quick = replace(ENCODED, decode_hidden_token_s=1e-9, decode_kv_token_s=1e-9)
    assert quick.costs(1000, codec="int8") == PROFILE.costs(1000)


def test_states_that_are_raw_or_of_another_codec_have_no_known_decoding() -> None:
    assert ENCODED.costs(1000) == ENCODED.costs(1000, codec="zstd") == PROFILE.costs(1000)
    assert ENCODED.decode_token_s(Source.HIDDEN, "int8") == 2e-6
    assert ENCODED.decode_token_s(Source.KV, "int8") == 3e-6
    assert ENCODED.decode_token_s(Source.KV, "raw") == 0.0


def test_fewer_bytes_are_read_as_from_a_faster_device() -> None:
    costs = ENCODED.moving(0.5).costs(1000, codec="int8")
    assert ENCODED.moving(0.5).costs(1000).io_hidden_s == pytest.approx(8192e3 / 52e9 + 2e-4)
    assert costs == ENCODED.costs(1000, codec="int8")


def test_measurements_become_the_lines_that_they_lie_on() -> None:
    tokens = (64, 256, 1024, 4096)
    sizes = [PROFILE.hidden_bytes * count for count in tokens]
    costs = {count: PROFILE.costs(count) for count in tokens}
    fitted = CostProfile.fitted(
        model=PROFILE.model,
        machine=PROFILE.machine,
        measured_at_s=PROFILE.measured_at_s,
        hidden_bytes=PROFILE.hidden_bytes,
        kv_bytes=PROFILE.kv_bytes,
        codec=ENCODED.codec,
        decode_hidden_token_s=ENCODED.decode_hidden_token_s,
        decode_kv_token_s=ENCODED.decode_kv_token_s,
        planned_tokens=ENCODED.planned_tokens,
        compute=[Sample(count, costs[count].compute_s) for count in tokens],
        project=[Sample(count, costs[count].project_s) for count in tokens],
        load=[Sample(count, costs[count].load_s) for count in tokens],
        read=[Sample(size, size / 26e9 + 2e-4) for size in sizes],
    )
    for field in fields(CostProfile):
        expected: Any = getattr(ENCODED, field.name)
        found = getattr(fitted, field.name)
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected))


def test_the_age_is_never_negative() -> None:
    assert PROFILE.age_s(1060.0) == 60.0
    assert PROFILE.age_s(900.0) == 0.0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model", "", "model is ''; it must be a name"),
        ("machine", 7, "machine is 7; it must be a name"),
        ("hidden_bytes", 1.5, "hidden_bytes is 1.5; it must be a whole number"),
        ("kv_bytes", 0, "kv_bytes is 0; it must be finite and above 0"),
        ("kv_bytes", True, "kv_bytes is True; it must be a whole number"),
        ("compute_token_s", "1", "compute_token_s is '1'; it must be a number"),
        ("compute_token_s", 0.0, "compute_token_s is 0.0; it must be finite and above 0"),
        ("project_token_s", float("nan"), "project_token_s is nan; it must be finite"),
        ("read_bytes_per_s", float("inf"), "read_bytes_per_s is inf; it must be finite"),
        ("read_latency_s", -1.0, "read_latency_s is -1.0; it must be finite and at least 0"),
        ("load_token_s", -1e-9, "load_token_s is -1e-09; it must be finite and at least 0"),
        ("load_constant_s", float("nan"), "load_constant_s is nan; it must be finite"),
        ("compute_square_s", -1e-9, "it must be finite and at least 0"),
        ("planned_tokens", 0, "planned_tokens is 0; it must be finite and above 0"),
        ("codec", "", "codec is ''; it must be a name"),
        ("codec", "raw", "decoding a token takes 2e-06 s and 3e-06 s; with codec raw it must be 0"),
        ("decode_hidden_token_s", 0.0, "with codec int8 it must be above 0"),
        ("decode_kv_token_s", 0, "with codec int8 it must be above 0"),
        ("decode_kv_token_s", -1.0, "decode_kv_token_s is -1.0; it must be finite and at least 0"),
    ],
)
def test_a_profile_that_cannot_be_used_says_what_is_wrong(
    name: str, value: object, words: str
) -> None:
    change: dict[str, Any] = {name: value}
    with pytest.raises(ProfileError) as error:
        replace(ENCODED, **change)
    assert words in str(error.value)


def test_lines_may_begin_at_0() -> None:
    plain = replace(
        PROFILE,
        compute_square_s=0,
        compute_constant_s=0.0,
        project_constant_s=0.0,
        load_token_s=0.0,
        load_constant_s=0.0,
        read_latency_s=0.0,
    )
    assert plain.costs(1).project_s == PROFILE.project_token_s
    assert plain.costs(1).load_s == 0.0


def test_a_calibration_said_nothing_of_its_spread() -> None:
    assert PROFILE.doubt == SPREAD_UNKNOWN
    assert replace(PROFILE, compute_spread=1.0, read_spread=1.1).doubt == SPREAD_UNKNOWN
    assert replace(PROFILE, compute_spread=3.0, read_spread=1.1).doubt == 3.0
    assert replace(PROFILE, compute_spread=1.0, read_spread=2.5).doubt == 2.5
    with pytest.raises(ProfileError, match=r"read_spread is 0\.9; it must be at least 1"):
        replace(PROFILE, read_spread=0.9)
