"""Compare searchers on one fault."""
