"""The engine on its thread, and what each request needs of it.

In reading order: one ``job`` for the engine, and the text of its answer as the event loop sees it
(``answer``); a prompt whose states are those of its namespace (``stored_prompt``), and who saves
those of which request (``shared_sink``); what one ``namespace`` has of the store; the thread
(``engine_thread``), and how many requests it may have (``admission``).
"""
