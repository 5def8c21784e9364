import pytest

from kvstored.io.device import DeviceError
from kvstored.io.engine import Background, IoRequest, Operation
from kvstored.io.transfer import REQUEST_BYTES_MAX, split_ranges, submit_split
from kvstored_contract.limits import ALIGNMENT_BYTES
from tests.kvstored.io.held_engine import HeldEngine

OFFSET = 7 * ALIGNMENT_BYTES
BYTE_COUNT = 2 * REQUEST_BYTES_MAX + ALIGNMENT_BYTES
"""Three requests."""


@pytest.fixture
def ends() -> list[DeviceError | None]:
    return []


@pytest.fixture
def engine(ends: list[DeviceError | None]) -> HeldEngine:
    held = HeldEngine()
    submit_split(
        held,
        IoRequest(
            device_index=3,
            operation=Operation.READ,
            buffers=(memoryview(bytes(BYTE_COUNT)),),
            offset=OFFSET,
            done=ends.append,
            background=Background.SCRUB,
        ),
    )
    return held


def test_the_requests_are_the_whole(engine: HeldEngine) -> None:
    assert len(engine.held) == 3
    end = OFFSET
    for request in engine.held:
        assert (request.device_index, request.operation, request.background) == (
            3,
            Operation.READ,
            Background.SCRUB,
        )
        assert request.offset == end
        end += request.buffers[0].nbytes
    assert end == OFFSET + BYTE_COUNT


def test_done_is_called_once_after_the_last_request(
    engine: HeldEngine, ends: list[DeviceError | None]
) -> None:
    engine.end(1)
    engine.end(1)
    assert ends == []
    engine.end()
    assert ends == [None]


def test_the_first_error_counts(engine: HeldEngine, ends: list[DeviceError | None]) -> None:
    first, second = (DeviceError("device", "read", cause) for cause in ("first", "second"))
    engine.end(error=first)
    engine.end(error=second)
    assert ends == []
    engine.end()
    assert ends == [first]


@pytest.mark.parametrize(
    "byte_count",
    [0, 1, ALIGNMENT_BYTES, REQUEST_BYTES_MAX, REQUEST_BYTES_MAX + 1, BYTE_COUNT, 33_558_528],
)
def test_requests_are_aligned_and_of_nearly_one_length(byte_count: int) -> None:
    ranges = split_ranges(byte_count)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == byte_count
    assert all(start % ALIGNMENT_BYTES == 0 for start, _ in ranges)
    lengths = [end - start for start, end in ranges]
    assert max(lengths) <= REQUEST_BYTES_MAX
    assert max(lengths) - min(lengths) <= ALIGNMENT_BYTES
    assert len(ranges) == max(1, -(-byte_count // REQUEST_BYTES_MAX))
