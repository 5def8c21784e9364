import torch

from engine_adapters.vllm.blocks.block_rows import BlockRows

BLOCK = 4


def rows_of(tokens: list[int]) -> torch.Tensor:
    """Rows [2, len(tokens), 1] that say which token they are of."""
    return torch.tensor([tokens, tokens], dtype=torch.float32)[:, :, None]


def gathered(rows: BlockRows, block_ids: list[int]) -> list[list[float]] | None:
    taken = rows.take(block_ids)
    return None if taken is None else [block[0, :, 0].tolist() for block in taken]


def test_rows_of_several_steps_become_a_block() -> None:
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1, 2]), [20, 21, 22])
    rows.add(rows_of([3]), [23])
    assert gathered(rows, [5]) == [[0, 1, 2, 3]]


def test_rows_of_requests_are_kept_apart() -> None:
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1, 2, 3, 10, 11]), [0, 1, 2, 3, 8, 9])
    rows.add(rows_of([12, 13, 4]), [10, 11, 4])
    assert gathered(rows, [0, 2]) == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_consecutive_blocks_are_told_apart() -> None:
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of(list(range(8))), list(range(8)))
    assert gathered(rows, [0, 1]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_incomplete_block_gives_nothing() -> None:
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1]), [0, 1])
    assert gathered(rows, [0]) is None
    assert gathered(rows, [7]) is None


def test_block_that_begins_in_its_middle_gives_nothing() -> None:
    """Its first tokens were restored: their rows were never seen."""
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([2, 3]), [2, 3])
    assert gathered(rows, [0]) is None


def test_reused_block_forgets_its_former_rows() -> None:
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1, 2]), [0, 1, 2])
    rows.add(rows_of([50, 51]), [0, 1])
    rows.add(rows_of([3]), [3])
    assert gathered(rows, [0]) is None


def test_oldest_block_goes_first() -> None:
    rows = BlockRows(capacity=2, block_tokens=BLOCK)
    rows.add(rows_of(list(range(12))), list(range(12)))
    assert gathered(rows, [0]) is None
    assert gathered(rows, [1, 2]) is not None


def test_what_was_forgotten_gives_nothing_and_other_blocks_are_gathered_anew() -> None:
    """Bug: rows of a block that was reused while none were taken were those of another request."""
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1, 2, 3, 4, 5]), [0, 1, 2, 3, 4, 5])
    rows.clear()
    rows.add(rows_of([6, 7]), [6, 7])
    assert gathered(rows, [0]) is None
    assert gathered(rows, [1]) is None


def test_block_that_was_filled_otherwise_gives_nothing() -> None:
    """Bug: inputs of a former request were stored as those of one that was restored there."""
    rows = BlockRows(capacity=8, block_tokens=BLOCK)
    rows.add(rows_of([0, 1, 2, 3, 4, 5, 6, 7]), list(range(8)))
    rows.forget([1, 5])
    assert gathered(rows, [1]) is None
    assert gathered(rows, [0]) == [[0, 1, 2, 3]]
