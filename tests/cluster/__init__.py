"""Real clusters of processes on this machine."""
