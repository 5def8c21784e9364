"""Pure decisions about what a tier keeps, fetches and gives up; others carry them out.

In reading order: the protocol of what goes first (``protocol``); keys in the order in which they
came (``stamped_keys``), which first in, first out (``fifo``) and S3-FIFO (``s3_fifo``) keep; what a
sequence used together (``bundles``), and least recently used (``lru``) on both; what brings the
most uses for its room (``hit_density``), from the ages at which keys are used (``use_ages``); keys
by a rank (``ranked_keys``), and what waiting requests need (``look_ahead``), from what several
engines say (``merged_places``), as far as it fits (``queue_head`` on ``queue_places``), in loops
that let others pass (``pauses``); least recently used for the rows of the table of chunks
(``table_lru`` on ``use_order``), with what requests need of them; all by name (``retention``); how
often chunks were used lately (``use_counts``); which slab of frames another size class gets
(``slab_uses``); what is fetched before it is asked for (``prefetch_plan``); what namespaces may
have, and whose chunks go for whom (``shares``); and what was not used for long (``expiry``), by
namespace (``lifetimes``).
"""
