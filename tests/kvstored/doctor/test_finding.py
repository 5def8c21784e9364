from kvstored.doctor.finding import Verdict, good, note, wrong


def test_only_what_is_good_needs_no_remedy() -> None:
    assert (good("a", "b").verdict, good("a", "b").remedy) == (Verdict.GOOD, "")
    assert (note("a", "b", "c").verdict, note("a", "b", "c").remedy) == (Verdict.NOTE, "c")
    assert (wrong("a", "b", "c").verdict, wrong("a", "b", "c").subject) == (Verdict.WRONG, "a")
