"""Pure eviction policies: which chunk goes first when a tier is full."""
