"""What is derived from the rows and searched: how it follows them."""
