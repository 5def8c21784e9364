"""Answers prompts that are linked from entries in the store (EPIC), and makes these entries.

In reading order: which chunks of entries are stored and where they go (``stored_entries``), the
restoration that loads them (``entry_restoration``) and the one that chooses tokens by what it has
loaded (``deviation_restoration``), a prompt as the engine sees it
(``linked_prompt``), what saves entries (``entry_sink``), and what a user calls (``link_runner``).
"""
