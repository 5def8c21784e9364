"""Answers prompts that are linked from entries in the store (EPIC), and makes these entries.

In reading order: which chunks of entries are stored and where they go (``stored_entries``), the
restoration that loads them (``entry_restoration``), what computes those that were lost
(``missing_states``), what chooses tokens by what was loaded (``deviations``, ``query_ranking``)
and the restoration that asks it (``chosen_restoration``), the leases of requests
(``entry_leases``), a prompt as the engine sees it (``linked_prompt``), what saves entries
(``entry_sink``), and what a user calls (``link_runner``).
"""
