"""Sources: adapters that read mailboxes, folders, repositories, drives and sites for an import."""

__all__: list[str] = []
