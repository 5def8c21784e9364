from engine_adapters.link.parts import EntryPart, NewPart


def test_parts_are_values() -> None:
    assert EntryPart("e", 3) == EntryPart("e", 3)
    assert EntryPart("e", 3) != NewPart(3)
