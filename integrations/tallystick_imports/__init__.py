"""Memories of other products: a way in, previewed first, and a way out."""

from tallystick_imports.foreign_memories import (
    ForeignFormat,
    Imported,
    export_lines,
    import_memories,
)

__all__ = ["ForeignFormat", "Imported", "export_lines", "import_memories"]
