"""How long a store is waited for, so that nothing takes much longer than computing.

In reading order: what may be lost (``stake``), and how fast states come (``read_pace``; what reads
take for the planner, ``read_meter``). On both: a load that a request waits for (``load_limit``),
and a history that comes layer after layer (``layerwise_limit``). Pure.
"""
