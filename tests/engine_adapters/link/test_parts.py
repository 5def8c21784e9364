from engine_adapters.link.parts import EntryPart, NewPart, Part


def test_parts_are_values() -> None:
    parts: list[Part] = [EntryPart("e", 3), NewPart(3)]
    assert parts.index(EntryPart("e", 3)) == 0
    assert parts.index(NewPart(3)) == 1
