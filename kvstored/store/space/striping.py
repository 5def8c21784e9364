"""Which device a chunk goes to. Pure."""


def device_for(*, stripe: int, device_count: int) -> int:
    """Round robin over the devices.

    Consecutive chunks of a sequence have consecutive stripes, so that every reading
    order keeps all devices busy and one lost device costs 1/``device_count`` of the
    chunks (HCache, section 4.2). Where a sequence starts is its writer's choice, which
    spreads sequences that are shorter than a round.
    """
    return stripe % device_count
