"""A plug-in that cannot even be imported."""

raise RuntimeError("out of order")
