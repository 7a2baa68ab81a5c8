"""What the adapters of several frameworks have in common, without any framework."""
