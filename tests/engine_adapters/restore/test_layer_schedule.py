import pytest

from engine_adapters.restore import LayerSchedule, Source
from kvstored_contract.layout import StateKind

H, KV, RE = Source.HIDDEN, Source.KV, Source.COMPUTE


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (((H, 31), (KV, 1)), "31 H + 1 KV"),
        (((H, 36), (KV, 4)), "36 H + 4 KV"),
        (((RE, 8), (H, 40)), "40 H + 8 RE"),
        (((RE, 2), (H, 3), (KV, 4)), "3 H + 4 KV + 2 RE"),
        (((KV, 5),), "5 KV"),
    ],
)
def test_the_words_are_those_of_table_3(parts: tuple[tuple[Source, int], ...], text: str) -> None:
    schedule = LayerSchedule.of(*parts)
    assert str(schedule) == text
    assert schedule.layer_count == sum(count for _, count in parts)


def test_what_is_stored_follows_from_the_sources_and_back() -> None:
    schedule = LayerSchedule.of((RE, 2), (H, 1), (KV, 1))
    assert schedule.kinds() == (
        StateKind.NONE,
        StateKind.NONE,
        StateKind.HIDDEN,
        StateKind.KV,
    )
    assert LayerSchedule.of_kinds(schedule.kinds()) == schedule


def test_bytes_of_a_token() -> None:
    schedule = LayerSchedule.of((RE, 2), (H, 3), (KV, 4))
    assert schedule.token_bytes(hidden_bytes=10, kv_bytes=100) == 430


@pytest.mark.parametrize("sources", [(H, RE), (RE, KV, RE), (KV, RE, RE)])
def test_computed_layers_come_first(sources: tuple[Source, ...]) -> None:
    with pytest.raises(ValueError, match="only when all layers before it are"):
        LayerSchedule(sources)


def test_a_layout_whose_first_layers_are_stored_and_later_ones_are_not_cannot_be_restored() -> None:
    with pytest.raises(ValueError, match="only when all layers before it are"):
        LayerSchedule.of_kinds([StateKind.HIDDEN, StateKind.NONE])


def test_a_schedule_has_layers() -> None:
    with pytest.raises(ValueError, match="at least one layer"):
        LayerSchedule(())
