"""Sources: adapters that read mailboxes, folders, repositories, drives and sites for an import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick_sources.crawl import CrawlSource
    from tallystick_sources.files import FilesSource
    from tallystick_sources.gdrive import GoogleDriveSource
    from tallystick_sources.github import GitHubSource
    from tallystick_sources.mailbox import MailboxSource

__all__ = [
    "CrawlSource",
    "FilesSource",
    "GitHubSource",
    "GoogleDriveSource",
    "MailboxSource",
]
_MODULES = {
    "CrawlSource": "crawl",
    "FilesSource": "files",
    "GitHubSource": "github",
    "GoogleDriveSource": "gdrive",
    "MailboxSource": "mailbox",
}


def __getattr__(name: str) -> Any:
    # Each source has libraries of its own, which load with it.
    if name not in _MODULES:
        raise AttributeError(f"module 'tallystick_sources' has no attribute {name!r}")
    return getattr(import_module(f"tallystick_sources.{_MODULES[name]}"), name)
