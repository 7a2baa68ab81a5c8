"""A small detector of traffic signs with natural false alarms, and their repair from the command line."""
