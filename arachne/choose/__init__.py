"""Choosing one candidate of a front: budgets, selection, minimising."""
