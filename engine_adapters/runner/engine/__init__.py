"""The step loop: requests come in, tokens go out.

In reading order: one ``request``, room for it (``slot_pool``), which tokens a step computes
(``scheduler``), the next token (``sampling``), what the loop and a restoration say to each other
(``restoration``, ``restore_report``), and the loop (``engine``).
"""
