from kvstored.cli.manual.page import manual_page
from tests.kvstored.cli.manual.sample import SAMPLE


def test_no_line_of_text_is_a_request() -> None:
    page = manual_page(SAMPLE, version="1")
    assert "\n\\&.where\n" in page
    assert "how \\e much" in page
    assert "\\fI{a,b}\\fR" in page
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".B", ".I", ".TP", ".PP"}
