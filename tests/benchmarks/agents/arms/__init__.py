"""The arms: each in a file of its own, written as its own documentation says."""
