"""What is left of documents when their markup is gone."""

from benchmarks.training.markup import (
    docstring_paragraphs,
    markdown_paragraphs,
    plain_paragraphs,
    pod_paragraphs,
    roff_paragraphs,
)

PAGE = r"""
.TH LS 1 "May 2020"
.\" A comment.
.SH DESCRIPTION
The command
.B ls
shows what is in a
.IR directory ,
and \fBmore\fP\-or\-less\&.
.PP
It is called \*(lqls\*(rq, or \(aqls\(aq \(em \e\(bu always\f(CW.
.nf
code is left out
.B here as well
.fi
.TP
Files are sorted.
'
"""


def test_a_manual_page_is_its_sentences() -> None:
    assert roff_paragraphs(PAGE) == [
        "The command ls shows what is in a directory, and more-or-less.",
        "It is called \"ls\", or 'ls' - \\ always.",
        "Files are sorted.",
    ]


def test_of_perl_the_documentation_is_left() -> None:
    module = (
        "package One;\n\nsub code { }\n\n=head1 NAME\n\nOne does C<one> and B<I<two>> and\n"
        "L<< a|b >>.\n\n  verbatim();\n\nThen three.\n\n=cut\n\nmore();\n"
    )
    assert pod_paragraphs(module) == ["One does one and two and a|b.", "Then three."]


def test_markdown_loses_code_tables_and_headings() -> None:
    text = (
        "# Title\n\nSee [the page](http://x) for **more** `words`.\n\n```\ncode\n```\n"
        "| a | b |\n\n    indented\n\n.. directive::\n\nLast\nline.\n"
    )
    assert markdown_paragraphs(text) == ["See the page for more words.", "Last line."]


def test_docstrings_without_their_examples() -> None:
    source = (
        '"""Module.\n\nMore of it:\n\n    code()\n\n>>> code()\n"""\n'
        'class One:\n    """One."""\n    async def two(self):\n        """Two."""\n'
        "def three(): pass\n"
    )
    assert docstring_paragraphs(source) == ["Module.", "More of it:", "One.", "Two."]


def test_what_is_no_python_has_no_docstrings() -> None:
    assert docstring_paragraphs("print 'old'") == []
    assert docstring_paragraphs("\0") == []


def test_paragraphs_are_single_lines() -> None:
    assert plain_paragraphs("\n\n a\n  b\n \n\nc\n") == ["a b", "c"]
