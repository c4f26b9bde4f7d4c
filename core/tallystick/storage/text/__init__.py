"""What goes through all text of a tally: searching its bytes, erasing, purging, counting."""
