"""Tallies on the move: archives, copies of files, restoring and merging."""
