from engine_adapters.link.parts import EntryPart, NewPart, Part


def test_parts_are_values() -> None:
    parts: set[Part] = {EntryPart("e", 3), NewPart(3), EntryPart("e", 3)}
    assert len(parts) == 2
