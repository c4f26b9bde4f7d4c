"""Searches the files of a folder for bytes, as a program of its own: `python -I -S file_search.py`.

A process that opens a file of a database in use and closes it again loses every lock that SQLite
holds there for it, and another process may then write what this one reads ("How To Corrupt An
SQLite Database File", section 2.2). Locks are those of a process, so another one reads the files.
It needs the standard library alone, and takes what it searches for from standard input: arguments
are seen by everybody on the machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

_READ = 1 << 20


def main() -> None:
    """Read `{"folder": path, "needles": [hex]}` and write the names of the files that contain one
    of them, as JSON. Files that vanish meanwhile are passed over; others that cannot be read end it
    with their name.
    """
    asked = json.loads(sys.stdin.buffer.read())
    folder = Path(asked["folder"])
    needles = [bytes.fromhex(needle) for needle in asked["needles"]]
    names = []
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        try:
            if file.is_file() and _contains(file, needles):
                names.append(name)
        except FileNotFoundError:
            continue
        except OSError as error:
            sys.exit(f"{name}: {error.strerror}")
    json.dump(names, sys.stdout)  # in ASCII, whatever this process takes the terminal to be


def _contains(file: Path, needles: Sequence[bytes]) -> bool:
    longest = max(map(len, needles))
    with file.open("rb") as stream:
        rest = b""
        while block := stream.read(_READ):
            window = rest + block
            if any(needle in window for needle in needles):
                return True
            rest = window[-longest:]
    return False


if __name__ == "__main__":
    main()
