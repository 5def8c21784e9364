from dataclasses import replace

import pytest

from benchmarks.cake.cell_setting import CellSetting, slow_quotient
from benchmarks.cake.paper_tables import TABLES, Cell
from benchmarks.cake.platforms import LLAMA_8B, LONG_ALPACA_7B
from engine_adapters.codecs.registry import codec_of_layer


def cell(table: int, *labels: str) -> Cell:
    (found,) = (each for each in TABLES[table - 3].cells if each.labels == labels)
    return found


def test_a_cell_is_scaled_to_the_tokens_that_stand_for_16k() -> None:
    setting = CellSetting.of(cell(5, "2xA100", "32Gbps", "12.5%", "4k"), 4096)
    assert (setting.tokens, setting.step_tokens, setting.bits) == (1024, 512, 16)
    assert (setting.token_budget, setting.others_tokens) == (64, 448)


def test_cells_of_different_tables_that_differ_in_nothing_are_one() -> None:
    cells = (
        cell(3, "2xA100", "100%", "32 Gbps"),
        cell(5, "2xA100", "32Gbps", "100%", "16k"),
        cell(6, "100%", "32Gbps", "LongAlpaca-13B"),
        cell(7, "32Gbps", "16 bits"),
    )
    assert len({CellSetting.of(each, 4096) for each in cells}) == 1


def test_only_models_with_grouped_heads_are_grouped() -> None:
    cells = {name: cell(6, "100%", "7Gbps", name) for name in (LONG_ALPACA_7B.name, LLAMA_8B.name)}
    grouped = {name for name, each in cells.items() if CellSetting.of(each, 4096).is_grouped}
    assert grouped == {LLAMA_8B.name}


def test_every_setting_has_a_name_of_its_own() -> None:
    settings = {CellSetting.of(each, 4096) for table in TABLES for each in table.cells}
    assert len({setting.name for setting in settings}) == len(settings)
    assert len({setting.label for setting in settings}) == len(settings)


@pytest.mark.parametrize("gpus", ["A100", "2xA100", "H100"])
def test_loading_alone_takes_as_many_times_as_long_as_in_the_paper(gpus: str) -> None:
    history_bytes, compute_s = 10_000_000, 2.0
    paper = cell(3, gpus, "100%", "7 Gbps")
    rate = CellSetting.of(paper, 4096).bytes_per_s(history_bytes, compute_s, value_bits=32)
    assert compute_s / (history_bytes / rate) == pytest.approx(slow_quotient(gpus))
    assert slow_quotient(gpus) == pytest.approx(paper.over_compute / paper.over_load)


def rate(*labels: str, value_bits: int) -> float:
    setting = CellSetting.of(cell(7, *labels), 4096)
    return setting.bytes_per_s(1000, 1.0, value_bits=value_bits)


def test_bandwidths_are_in_proportion() -> None:
    slow, fast = (rate(speed, "16 bits", value_bits=32) for speed in ("7Gbps", "56Gbps"))
    assert fast / slow == pytest.approx(8)


@pytest.mark.parametrize("value_bits", [16, 32])
def test_encoded_states_come_from_the_device_of_values_of_16_bits(value_bits: int) -> None:
    raw, narrow, least = (
        rate("7Gbps", f"{bits} bits", value_bits=value_bits) for bits in (16, 8, 3)
    )
    assert narrow == least
    assert raw / narrow == pytest.approx(value_bits / 16)


def test_every_width_has_a_codec_that_keeps_all_bits_or_says_so() -> None:
    settings = {CellSetting.of(each, 4096) for each in TABLES[4].cells}
    assert {(each.bits, each.codec) for each in settings} == {
        (16, "raw"),
        (8, "int8"),
        (3, "int3"),
    }
    for each in settings:
        assert codec_of_layer(each.codec, layer=0, layer_count=1).is_lossless is each.is_lossless


def test_a_cell_that_the_paper_lacks_has_the_device_of_its_three_bits() -> None:
    ours = CellSetting.of_cachegen(4096)
    paper = CellSetting.of(cell(7, "32Gbps", "3 bits"), 4096)
    assert replace(ours, codec=paper.codec) == paper
    assert codec_of_layer(ours.codec, layer=0, layer_count=1).name != paper.codec
    assert not ours.is_lossless
    assert ours.name == paper.name.replace("3_bits", "cachegen")
    assert ours.label == paper.label.replace("3b", "cachegen")
