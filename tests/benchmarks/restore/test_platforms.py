import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.restore.platforms import A30, A100, PLATFORMS, Platform, platform_of


def test_reads_are_limited_by_the_ssds_or_by_the_links() -> None:
    one, four, sixteen = (platform_of(f"A100,{count}") for count in (1, 4, 16))
    assert one.read_bytes_per_s(1) == 6.9e9
    assert four.read_bytes_per_s(1) == A100.read_bytes_per_s(1) == pytest.approx(26.24e9)
    assert four.read_bytes_per_s(4) == pytest.approx(27.6e9)
    assert sixteen.read_bytes_per_s(4) == A100.read_bytes_per_s(4)


def test_platforms_by_name_and_by_numbers() -> None:
    assert platform_of("A30") == A30
    assert platform_of("A30,2").storage == "2 SSD"
    own = Platform(name="own", flops_per_s=100e12, link_bytes_per_s=16e9, ssd_count=3)
    assert platform_of("own,100,16,3") == own
    assert platform_of("own,100,16").storage == "DRAM"
    assert platform_of("A30,100,16").flops_per_s == 100e12


@pytest.mark.parametrize(
    "text",
    ["", "B200", "B200,4", "own,fast,16", "own,0,16", "own,nan,16", "own,1,inf", "A30,1,2,3,4"],
)
def test_what_is_no_platform(text: str) -> None:
    with pytest.raises(BenchmarkError) as error:
        platform_of(text)
    assert all(word in str(error.value) for word in (repr(text), *PLATFORMS, "TFLOPS"))
