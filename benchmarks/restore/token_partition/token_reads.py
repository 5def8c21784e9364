"""How the stored parts of a token-wise partition are read beside each other. Pure."""


def round_count(token_count: int, byte_count: int, *, round_tokens: int, round_bytes: int) -> int:
    """Into how many rounds a history is cut, each with the same share of every part.

    A round has ``round_tokens`` and ``round_bytes`` at most, but for shares that are not whole
    chunks; there is at least one.
    """
    return max(1, -(-token_count // round_tokens), -(-byte_count // round_bytes))


def slices_in_flight(hidden_chunks: int, kv_chunks: int, *, total: int) -> tuple[int, int]:
    """How many slices of two reads to keep in flight, of hidden states and of KV.

    The reads bring layer after layer, of so many chunks each (at least one). With slices in
    flight in proportion to their chunks they get on alike, so that both parts of a layer
    come together (HCache, figure 8c). The proportion is the nearest of at most ``total``
    slices with which hidden states come no later than KV, because they are still to be
    projected. Raises ValueError for fewer than two slices.
    """
    if total < 2:
        raise ValueError(f"two reads cannot share {total} slices in flight")
    shares = [
        (hidden, kv)
        for hidden in range(1, total)
        for kv in range(1, total - hidden + 1)
        if hidden * kv_chunks >= hidden_chunks * kv
    ]
    # More in flight where several have the same proportion.
    return min(shares or [(total - 1, 1)], key=lambda share: (share[0] / share[1], -share[0]))
