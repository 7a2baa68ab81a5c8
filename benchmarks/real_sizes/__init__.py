"""Networks of the sizes people use, on one machine: what localisation and a whole repair cost."""
