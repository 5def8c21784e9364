from tests.support.marked_files import LAB, LONGEST, _files_with, alone_files, lab_files, strays


def test_files_are_found_by_what_they_import() -> None:
    assert "tests/faults/memory/test_soak.py" in alone_files()
    assert "tests/faults/power/test_power.py" in lab_files()
    assert "tests/support/test_marked_files.py" not in lab_files() + alone_files()


def test_the_longest_labs_come_first_and_once() -> None:
    files = lab_files()
    assert tuple(files[: len(LONGEST)]) == LONGEST
    assert sorted(files) == _files_with(LAB)


def test_a_marked_test_that_no_stage_would_find_is_told() -> None:
    here = "tests/support/test_marked_files.py"
    soak = "tests/faults/memory/test_soak.py"
    (sentence,) = strays([(here, "quick"), (here, "vllm"), (soak, "alone"), (soak, "long")])
    assert here in sentence
    assert "quick" in sentence
