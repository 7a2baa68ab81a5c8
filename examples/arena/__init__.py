"""Repairs of networks that others published, beside the figures they published: `python -m examples.arena`."""
