"""The contract of a model: `ModelBackend`, the values that cross it, cuts, traces, sharding and memory."""
