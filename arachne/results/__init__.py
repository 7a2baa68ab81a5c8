"""The result of a repair, its folder, its front and its checkpoints."""
