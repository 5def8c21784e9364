"""Sequences in use: rows come in, complete chunks go out, records follow.

In reading order: one sequence in memory (``open_sequence``), those of each session
(``owned_sequences``) and all of them (``open_sequences``); frames of open tails (``tail_frames``),
and those that others may have (``flushed_tails``); the rows of a step (``append_path``), each item
with its frames (``placed_rows``), which wait for their tails together (``joint_wait``); records
that follow their chunks onto the devices (``sequence_recorder``); what they used together before
the start (``earlier_uses``); and what clients do with sequences by name (``sequences``).
"""
