"""Inputs that do not fit in memory: read, preprocessed and written in pieces."""
