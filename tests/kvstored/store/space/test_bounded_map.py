from concurrent.futures import ThreadPoolExecutor

import pytest

from kvstored.store.space.bounded_map import bounded_map


def test_results_come_in_the_order_of_the_items() -> None:
    with ThreadPoolExecutor(4) as executor:
        assert list(bounded_map(executor, str, range(100), depth=3)) == list(map(str, range(100)))


def test_items_are_taken_no_further_ahead_than_depth() -> None:
    taken = []

    def items():
        for number in range(10):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(1) as executor:
        results = bounded_map(executor, lambda number: number, items(), depth=3)
        assert next(results) == 0
        assert taken == [0, 1, 2, 3]
        assert list(results) == list(range(1, 10))


def test_an_error_of_a_call_is_raised() -> None:
    with ThreadPoolExecutor(2) as executor, pytest.raises(ZeroDivisionError):
        list(bounded_map(executor, lambda number: 1 // number, [1, 0, 2], depth=2))
