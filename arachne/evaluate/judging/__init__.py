"""Judging candidates: bounds from a route and its error band, exact deficits from reference scores, and the facts."""
