"""The fast path: what lies behind a layer, as a list of torch calls that is run again for every candidate."""
