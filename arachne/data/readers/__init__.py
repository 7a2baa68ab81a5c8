"""Readers: one module per kind of source."""
