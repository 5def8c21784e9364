"""Verbs that watch a running daemon and tell it what to do.

In reading order: a session of an operator (``operator_session``), the chunks that are meant
(``selection``) and times on the command line (``times``);
the screen of ``top`` from two looks at the daemon (``rates``, pure; ``screen``, ``top_command``);
chunks that are brought into DRAM (``warm_command``) or kept (``pin_command``, ``unpin_command``);
what a namespace may have (``quota_command``); and the end of new work (``drain_command``).
"""
