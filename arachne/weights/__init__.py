"""Weights: which of them change (`selection`), how (`edit`), and what a model can store for them (`storage`)."""
