"""Repairs that once took minutes, each measured by one command."""
