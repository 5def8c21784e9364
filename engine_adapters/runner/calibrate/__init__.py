"""Measuring a machine for a model (HCache, section 4.1.2).

In reading order: what computing costs (``compute_costs``), what decoding (``decode_costs``) and
reading cost (``read_costs``), all of it (``calibrate``), and where profiles lie
(``profile_place``).
"""
