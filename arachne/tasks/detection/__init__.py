"""Detection: a detector's outputs read as decisions about its anchors, and as what people read of a detector."""
