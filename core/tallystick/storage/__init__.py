"""The only room that speaks SQL, files or Chroma. It turns a scope filter into SQL and never
decides.
"""

from sqlalchemy import Connection

from tallystick.storage.chroma import ChromaIndex
from tallystick.storage.database import Database
from tallystick.storage.location import Location
from tallystick.storage.payloads import Bases
from tallystick.storage.scopes import ScopeRow
from tallystick.storage.store import Store

__all__ = ["Bases", "ChromaIndex", "Connection", "Database", "Location", "ScopeRow", "Store"]
