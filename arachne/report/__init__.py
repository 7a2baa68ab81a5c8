"""Reports for people: tables, pages and files."""
