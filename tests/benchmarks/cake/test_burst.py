import random

from benchmarks.cake.burst import spiked_burst


def test_22_requests_come_in_spikes_with_the_papers_lengths() -> None:
    burst = spiked_burst(random.Random(1), [0.5, 1.0, 2.0])
    assert len(burst) == 22
    assert {request.arrives_s for request in burst} == {0.5, 1.0, 2.0}
    assert [request.arrives_s for request in burst] == sorted(each.arrives_s for each in burst)
    assert all(32 <= request.token_count <= 448 for request in burst)
    assert len({request.token_count for request in burst}) > 10
