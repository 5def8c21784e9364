"""What a client can ask, as flows that any transport can drive.

In reading order: calls as values (``call``, ``methods``); requests (``requests``, with
``placement`` in the arena) and replies (``replies``). The verbs: ``store_verbs``, ``append_verb``,
``sequence_verbs``, ``admin_verbs``. What clients of threads and of tasks share: a read's board
(``held_board``) and its ``progress``, leases (``lease``), and the client's own ``base``.
"""
