"""Saving in two stages (HCache, section 4.2.2).

In reading order: which rows of a step are new (``saver``), steps that go together
(``held_steps``), stage 1 (``snapshot``), the thread of stage 2 (``save_queue``), which appends rows
(``append_queue``) or encodes and puts whole chunks (``encoding_queue``).
"""
