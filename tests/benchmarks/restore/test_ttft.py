import pytest

from benchmarks.restore.calibration import profile_of
from benchmarks.restore.claim import over
from benchmarks.restore.paper import DEFAULT_TESTBED
from benchmarks.restore.setting import Setting
from benchmarks.restore.shapes import LLAMA_7B, LLAMA_13B, OPT_30B, ModelShape
from benchmarks.restore.ttft import MEMORY_BYTES_PER_S, Request, TtftSetting
from engine_adapters.restore import Mode


def setting(*, new_tokens: int = 50, hit_ratio: float = 0.0) -> TtftSetting:
    return TtftSetting(
        shape=LLAMA_7B,
        platform=DEFAULT_TESTBED,
        request=Request(name="", history_tokens=4096, new_tokens=new_tokens),
        hit_ratio=hit_ratio,
    )


def test_a_first_token_takes_restoring_and_prefilling() -> None:
    restored = Setting(shape=LLAMA_7B, platform=DEFAULT_TESTBED, token_count=4096)
    one = setting()
    assert one.restore_s(Mode.KV) == pytest.approx(4096 / restored.tokens_per_s(Mode.KV))
    assert one.ttft_s(Mode.KV) == one.restore_s(Mode.KV) + one.prefill_s
    assert setting(hit_ratio=0.75).restore_s(Mode.KV) == pytest.approx(one.restore_s(Mode.KV) / 4)
    assert setting(hit_ratio=1.0).ttft_s(Mode.RECOMPUTE) == one.prefill_s


def test_few_new_tokens_take_the_reading_of_the_weights_and_many_their_computation() -> None:
    assert setting(new_tokens=1).prefill_s == setting(new_tokens=50).prefill_s
    many, history = 4096, 4096
    whole = profile_of(DEFAULT_TESTBED, LLAMA_7B).costs(history + many).compute_s
    old = profile_of(DEFAULT_TESTBED, LLAMA_7B).costs(history).compute_s
    assert setting(new_tokens=many).prefill_s == pytest.approx(32 * (whole - old))


@pytest.mark.parametrize(
    ("shape", "weight_bytes"), [(LLAMA_7B, 13.5e9), (LLAMA_13B, 26e9), (OPT_30B, 60e9)]
)
def test_weights_are_those_of_the_published_models_but_for_embeddings(
    shape: ModelShape, weight_bytes: float
) -> None:
    one = TtftSetting(
        shape=shape,
        platform=DEFAULT_TESTBED,
        request=Request(name="", history_tokens=1, new_tokens=1),
    )
    assert one.prefill_s * shape.gpu_count * MEMORY_BYTES_PER_S == pytest.approx(
        weight_bytes, rel=0.06
    )


@pytest.mark.parametrize(("low", "high"), [(1.0001, 1.2), (5.0, 6.0)])
def test_the_implied_prefill_gives_what_was_claimed(low: float, high: float) -> None:
    claim = over(Mode.KV, low, high, section="6")
    one = setting()
    prefill_s = one.implied_prefill_s(claim)
    end = high if one.speedup(claim) > high else low
    speedup = (one.restore_s(Mode.KV) + prefill_s) / (one.restore_s(Mode.HCACHE) + prefill_s)
    assert speedup == pytest.approx(end)
    ideal_s = one.ideal_prefill_s(Mode.KV, 10.0)
    assert one.restore_s(Mode.KV) + ideal_s == pytest.approx(10 * ideal_s)
