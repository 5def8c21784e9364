"""A conversation over a long document, taken turn by turn by separate runner processes.

In reading order: a turn in a process of its own (``runner_process``), the last one from both ends
(``both_ends``) and that many times (``repeated``); the other conversation, which outgrows its
window: what the user says (``script``), how it is taken and compared (``overflow``) and shown
(``overflow_display``). The last request links four documents (``linked``, ``linked_display``). All
of it is the ``job``, and ``result_file`` keeps what it measured.
"""
