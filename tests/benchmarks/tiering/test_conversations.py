import pytest

from benchmarks.tiering.conversations import generate, statistics_of


def test_they_have_the_statistics_of_the_paper() -> None:
    conversations = generate(3, count=6000, sessions_per_s=2.0)
    for name, (own, published) in statistics_of(conversations).items():
        assert own == pytest.approx(published, rel=0.06), name
    span_s = conversations[-1].arrival_s - conversations[0].arrival_s
    assert 6000 / span_s == pytest.approx(2.0, rel=0.05)


def test_the_seed_decides_everything() -> None:
    first, same, other = (generate(seed, count=20, sessions_per_s=1.0) for seed in (1, 1, 2))
    assert first == same != other
    assert first[0].token_count == sum(first[0].turns)
