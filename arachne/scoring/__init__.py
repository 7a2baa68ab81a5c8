"""Scoring: from a change of weights to what the model says with it, and what that does to each decision."""
