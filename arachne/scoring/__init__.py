"""Scoring: from a change of weights to the model's scores, and to the outcome of each decision."""
