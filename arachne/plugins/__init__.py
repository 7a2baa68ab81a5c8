"""Plug-ins: the table of names, and the options a plug-in declares."""
