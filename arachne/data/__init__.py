"""Labelled inputs: reading, preprocessing, the targets of a repair, and the split into seen and held out."""
