from kvstored.store.space.use_times import ALONE, BundleUses


def test_a_bundle_is_gone_with_its_last_chunk() -> None:
    bundles = BundleUses()
    first, second = bundles.make(), bundles.make()
    assert ALONE not in (first, second)
    assert [bundles.enter(first) for _ in range(3)] == [0, 1, 2]
    bundles.enter(second)
    bundles.times[first] = 9
    for position in (1, 2, 0):
        assert bundles.count == 2
        bundles.leave(first, position)
    assert (bundles.count, int(bundles.times[first])) == (1, 0)
    assert bundles.make() == first
    assert bundles.enter(first) == 0


def test_the_last_chunk_is_known_until_there_is_a_gap() -> None:
    bundles = BundleUses()
    number = bundles.make()
    for _ in range(4):
        bundles.enter(number)
    assert bundles.is_last(number, 3)
    bundles.leave(number, 1)
    bundles.leave(number, 3)
    assert bundles.is_last(number, 2)
    bundles.leave(number, 2)
    assert not bundles.is_last(number, 0)
    assert bundles.size(number) == 1


def test_there_may_be_many() -> None:
    bundles = BundleUses()
    numbers = [bundles.make() for _ in range(5000)]
    for time, number in enumerate(numbers):
        bundles.enter(number)
        bundles.times[number] = time
    assert bundles.times[numbers].tolist() == list(range(5000))
    assert int(bundles.times[ALONE]) == 0
