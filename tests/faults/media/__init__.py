"""What media do to the store, and what the store makes of it."""
