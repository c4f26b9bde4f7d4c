"""Views of records for a person at a terminal: tables and panels of rich."""
