import pytest

from benchmarks.restore.shapes import LLAMA_7B, LLAMA_13B, OPT_30B, ModelShape
from benchmarks.restore.table_3 import TABLE_3, schedule_at_balance, schedule_of, token_kib
from engine_adapters.restore import LayerSchedule, Source

H, KV, RE = Source.HIDDEN, Source.KV, Source.COMPUTE


def test_schedules_of_7b_and_13b_are_the_papers_and_that_of_30b_is_one_layer_off() -> None:
    ours = {printed.shape: str(schedule_of(printed.shape)) for printed in TABLE_3}
    assert ours[LLAMA_7B] == "31 H + 1 KV"
    assert ours[LLAMA_13B] == "36 H + 4 KV"
    assert ours[OPT_30B] == "41 H + 7 RE"


def test_the_papers_balance_of_30b_contradicts_its_schedule() -> None:
    assert str(schedule_at_balance(OPT_30B)) == "45 H + 3 RE"


@pytest.mark.parametrize(
    ("shape", "parts", "kib"),
    [
        (LLAMA_7B, ((H, 31), (KV, 1)), 132),
        (LLAMA_7B, ((KV, 32),), 256),
        # The paper prints 210 beside 36 H + 4 KV; that is what 38 H + 2 KV take.
        (LLAMA_13B, ((H, 36), (KV, 4)), 220),
        (LLAMA_13B, ((H, 38), (KV, 2)), 210),
        (LLAMA_13B, ((KV, 40),), 400),
        (OPT_30B, ((RE, 8), (H, 40)), 280),
        (OPT_30B, ((KV, 48),), 672),
    ],
)
def test_storage_for_each_token_as_the_paper_counts(
    shape: ModelShape, parts: tuple[tuple[Source, int], ...], kib: int
) -> None:
    assert token_kib(shape, LayerSchedule.of(*parts)) == kib
