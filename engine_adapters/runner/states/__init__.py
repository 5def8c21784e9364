"""How the runner's states lie in the chunks of the store.

In reading order: from a mode to the source of every layer (``mode_choice``), and layouts and bytes
(``state_format``).
"""
