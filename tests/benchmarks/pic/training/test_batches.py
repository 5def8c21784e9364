"""Sequences of documents and questions."""

import torch

from benchmarks.pic.facts.library import Kind, LibraryShape, Signs
from benchmarks.pic.training.batches import KINDS, BatchShape, Sources, draw_batch
from benchmarks.training.batch import IGNORED, TEXT

SOURCES = Sources(
    signs=Signs(document=1, fact=2, chain=3, example=4, unknown=5),
    words=range(100, 300),
    text=[10 + number % 90 for number in range(2000)],
    filler=6,
)
SHAPE = BatchShape(
    sequence_count=6,
    position_count=256,
    library=LibraryShape(
        document_counts=range(2, 5),
        document_tokens=range(24, 41),
        token_count=120,
        fact_count=4,
        chain_count=3,
        class_count=2,
        example_count=2,
        unknown_count=1,
    ),
)


def test_a_batch_depends_on_its_number_alone() -> None:
    first, same, other = (draw_batch(SOURCES, SHAPE, seed=1, number=n) for n in (3, 3, 4))
    assert torch.equal(first.inputs, same.inputs)
    assert torch.equal(first.targets, same.targets)
    assert torch.equal(first.kinds, same.kinds)
    assert not torch.equal(first.inputs, other.inputs)


def test_answers_follow_from_what_stands_before_them() -> None:
    batch = draw_batch(SOURCES, SHAPE, seed=1, number=0)
    assert batch.inputs.shape == batch.targets.shape == batch.kinds.shape == (6, 256)
    one_hop, two_hops = KINDS[Kind.ONE_HOP], KINDS[Kind.TWO_HOPS]
    for inputs, targets, kinds in zip(
        batch.inputs.tolist(), batch.targets.tolist(), batch.kinds.tolist(), strict=True
    ):
        assert {*kinds} == {TEXT, *KINDS.values()}
        for place, (target, kind) in enumerate(zip(targets, kinds, strict=True)):
            values = {
                inputs[at + 1]: inputs[at + 2]
                for at in range(place - 2)
                if inputs[at] == SOURCES.signs.fact
            }
            if kind == one_hop:
                assert values[inputs[place]] == target
            elif kind == two_hops:
                assert values[values[inputs[place]]] == target


def test_some_questions_follow_their_documents_and_others_come_last() -> None:
    batch = draw_batch(SOURCES, SHAPE, seed=1, number=0)
    for inputs, kinds in zip(batch.inputs.tolist(), batch.kinds.tolist(), strict=True):
        asked = [place for place, kind in enumerate(kinds) if kind != TEXT]
        last_document = max(
            place
            for place, token in enumerate(inputs[: asked[-1]])
            if token == SOURCES.signs.document
        )
        assert asked[0] < last_document < asked[-1]


def test_text_foretells_the_next_token_and_all_else_is_chance() -> None:
    batch = draw_batch(SOURCES, SHAPE, seed=2, number=0)
    is_text = (batch.kinds == TEXT) & (batch.targets != IGNORED)
    assert is_text.any(dim=1).all()
    following = torch.roll(batch.inputs, -1, dims=1)
    assert torch.equal(batch.targets[:, :-1][is_text[:, :-1]], following[:, :-1][is_text[:, :-1]])
    allowed = (batch.targets >= 10) & (batch.targets < 100) | (batch.targets == SOURCES.filler)
    assert allowed[is_text].all()
