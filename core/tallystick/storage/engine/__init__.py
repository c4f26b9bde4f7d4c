"""The database of a tally: tables, statements, commits, and where its files are."""
