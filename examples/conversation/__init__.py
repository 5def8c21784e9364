"""A conversation over a long document, taken turn by turn by separate runner processes."""
