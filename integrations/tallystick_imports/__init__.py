"""Memories of other products: a way in, previewed first, and a way out."""

from tallystick_imports.exporting import ExportFormat, export_lines
from tallystick_imports.foreign_memories import ForeignFormat, Imported, import_memories

__all__ = ["ExportFormat", "ForeignFormat", "Imported", "export_lines", "import_memories"]
