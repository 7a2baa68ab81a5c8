"""What people read of a repair: a table, a page, a file."""
