"""The fast evaluator: bounds from a route and its error band, and exact deficits from reference scores."""
