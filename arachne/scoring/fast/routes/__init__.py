"""Routes: ways from candidates to class scores that are faster than a full forward pass, and right up to rounding."""
