"""Turns of conversations through runner and daemon (AttentionStore, sections 3.2 and 4).

In reading order: what the paper publishes (``paper``) and how much is measured (``scale``); what
computing costs here and which device is as slow (``costs``); what times a turn (``timed_talk``), a
daemon with conversations of one engine (``talking``); whether ways said the same
(``same_answers``); the parts: conversations that wait for each other (``turns_lab``, ``turns``),
histories and read buffers of one turn (``preloading``), saving beside computing (``saving``) and
windows that overflow (``overflow``); what the paper has beside that (``show``) and all parts
together (``run``).
"""

from benchmarks.conversations.run import BENCHMARK

__all__ = ["BENCHMARK"]
