"""The step loop: requests come in, tokens go out.

In reading order: one ``request``, with the conversation that it continues (``conversing``) and the
cuts of that (``cut_track``), or the entries that it is linked from (``linking``); how it is made
(``new_request``) and waits (``waiting_line``); room for it, and which tokens a step computes
(``scheduler``), the next token (``sampling``), what the loop and a restoration say to each other
(``restoration``, ``restore_report``), new tokens that follow the layers of their history
(``layered_prefill``, ``layer_follower``), cuts in the cache (``cache_cuts``), and the loop
(``engine``).
"""
