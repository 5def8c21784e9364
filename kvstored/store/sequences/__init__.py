"""Sequences as the store knows them: named lists of chunks with a tail.

In reading order: the state of one (``sequence_state``), what can be done to it (``rules``), and
where its record is kept (``sequence_table``).
"""
