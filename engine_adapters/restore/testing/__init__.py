"""Help for tests and benchmarks of the planner: it runs under a virtual clock. Pure.

Restorations from both ends (``virtual_run``, which reads by ``virtual_reader``) and by layers
(``virtual_spans``), at speeds that change (``changing_speed``), against the best that
was possible (``oracle``).
"""
