"""Parts that adapters are built from; each is used by two adapters or more."""
