"""The only room that speaks SQL, files or Chroma. It turns a scope filter into SQL and never
decides.
"""

from sqlalchemy import Connection

from tallystick.storage.engine.database import Database
from tallystick.storage.engine.location import Location
from tallystick.storage.index.chroma import ChromaIndex
from tallystick.storage.rows.payloads import Bases
from tallystick.storage.rows.scopes import ScopeRow
from tallystick.storage.store import Store

__all__ = ["Bases", "ChromaIndex", "Connection", "Database", "Location", "ScopeRow", "Store"]
