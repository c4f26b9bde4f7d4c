"""Rows: one module for each kind, which reads and writes it."""
