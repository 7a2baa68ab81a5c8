"""Repairs of models that come inside packages people install: `python -m examples.gallery`."""
