"""The subject of `arachne demo`: a small model and scikit-learn's digits, made by `scripts/make_demo.py`."""
