"""What a calibration learns of reads: all sizes in turn, apart in time, and their spread."""

from collections.abc import Iterator

import pytest

from engine_adapters.runner.calibrate.read_costs import CalibrationError, ReadTimer
from kvstored_client.testing import Faults, MemoryClient, MemoryStore
from tests.engine_adapters.runner.calibrate.moments import BadMoment

TOKEN_BYTES, CHUNK_TOKENS, REPEATS = 64, 8, 3


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    with MemoryClient(MemoryStore(faults=Faults(from_devices=True))) as client:
        yield client


def test_a_bad_moment_was_all_that_a_calibration_saw_of_reads(client: MemoryClient) -> None:
    """Repetitions follow each other after a pause, all sizes in each; the result has the spread."""
    moment = BadMoment()
    timer = ReadTimer(client, clock=moment.clock, pause=moment.pause)
    costs = timer.measure(
        TOKEN_BYTES,
        (2 * CHUNK_TOKENS, 4 * CHUNK_TOKENS),
        chunk_tokens=CHUNK_TOKENS,
        repeats=REPEATS,
    )
    assert [sample.seconds for sample in costs.samples] == [0.25, 0.25]
    slice_bytes = TOKEN_BYTES * CHUNK_TOKENS
    assert [sample.size for sample in costs.samples] == [2 * slice_bytes, 4 * slice_bytes]
    assert (moment.pause_count, costs.spread, costs.is_cold) == (REPEATS - 1, 4.0, True)
    # Nothing of it stays.
    assert not client.store.chunks
    assert client.store.regions_in_use == 0


def test_a_store_that_is_gone_is_told(client: MemoryClient) -> None:
    client.store.kill()
    with pytest.raises(CalibrationError, match="the daemon is absent"):
        ReadTimer(client).measure(TOKEN_BYTES, (8,), chunk_tokens=CHUNK_TOKENS, repeats=1)
