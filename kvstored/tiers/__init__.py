"""Places with a capacity and a speed, and the decisions about what lies where.

In reading order: the tiers put together (``tiered_store``), with the sizes that they are built
with (``tier_limits``) and what a start finds (``recovered_store``); chunks in DRAM and on the way
to and from the devices (``chunks``); sequences in use (``sequences``); which requests
wait (``hints``); which chunks came and went
(``changes``), and when deletions are over (``deletions``); what operators do (``upkeep``);
which layouts fit (``layouts``); what a namespace may have (``namespaces``);
the online scrub (``scrub``); what goes first
when a tier is full (``policy``), and how it is looked for among
millions of chunks (``table_looks``).
"""
