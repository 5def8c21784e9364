"""The connector in the scheduler: decides what is loaded and saved, for each step.

In reading order: what is known of one request (``request_track``), of what was found for it
(``found``) and of loads that run (``running_load``, ``loads``); how much is loaded, and in which
mode (``load_choice``). The store knows a request under one identity (``store_identities``) and is
asked on a thread (``lookup``), once for each admission (``answers``), within the time of a step
(``step_budget``), and left alone when it hangs (``engine_adapters.breaker``; ``disconnections``
counts). What a step saves (``saving``), what routers hear (``telling``),
what the store hears of those that wait (``waiting_hints``); computing from the front while the end
is loaded (``overtaking``, ``pace``); prompts of linked entries: which ones are (``links``), what
the store has of them (``link_question``), and their steps and jumps (``linking``); and when counts
are said (``due_counts``). ``side`` puts these together.
"""
