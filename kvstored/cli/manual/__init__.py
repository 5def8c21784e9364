"""The command line in other forms than its own help.

In reading order: what it is, as values (``command_line``, pure), taken from its parsers
(``describe``); what completes it in a shell (``completion``, pure; ``completion_command``), and its
page of the manual (``page``, pure; ``python -m kvstored.cli.manual`` prints it).
"""
