"""Text of a PDF, read in a child process that time and memory may end."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, cast

from tallystick.errors import MissingExtra
from tallystick.formats import pdf_child
from tallystick.formats.decoding import Unextractable

LARGEST_PDF = 200_000_000
"""Bytes of a document that is handed to the child."""


class PdfReader:
    """One child process, started with the first document and again after it ended."""

    def __init__(self, seconds: float = pdf_child.SECONDS) -> None:
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def read(self, body: bytes) -> tuple[str, str]:
        """Return the text of a document as Markdown, and its title. Raises Unextractable,
        MissingExtra. Waits for a document that another thread reads.
        """
        if len(body) > LARGEST_PDF:
            raise Unextractable("too_large", f"a PDF of {len(body)} bytes")
        with self._lock:
            answer = self._ask(body)
        if "reason" in answer:
            raise Unextractable(answer["reason"], answer["detail"])
        return answer["text"], answer["title"]

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()

    def _ask(self, body: bytes) -> dict[str, Any]:
        # A child that has read before may have ended by itself: what fails there is tried on a
        # fresh one, whose failure is the document's.
        is_fresh = False
        while True:
            if not self._is_running():
                self._start()
                is_fresh = True
            started = time.monotonic()
            answer = self._exchange(body)
            if answer is not None:
                return answer
            self.close()
            if is_fresh:
                if time.monotonic() - started >= self._seconds:
                    detail = f"a PDF that takes more than {self._seconds:g} s"
                    return {"reason": "too_slow", "detail": detail}
                return {"reason": "unreadable", "detail": "a PDF that ended its reader"}

    def _exchange(self, body: bytes) -> dict[str, Any] | None:
        child = cast("subprocess.Popen[bytes]", self._child)
        requests, answers = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
        try:
            requests.write(b"%d\n" % len(body))
            requests.write(body)
            requests.flush()
            return cast("dict[str, Any]", json.loads(answers.read(int(answers.readline()))))
        except (OSError, ValueError):
            return None

    def _is_running(self) -> bool:
        return self._child is not None and self._owner == os.getpid() and self._child.poll() is None

    def _start(self) -> None:
        from importlib.util import find_spec

        if find_spec("pypdfium2") is None and find_spec("pypdf") is None:
            raise MissingExtra("pypdfium2", "files")
        self.close()
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(Path(pdf_child.__file__)), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._owner = os.getpid()


READER = PdfReader()
"""The reader of this process."""
atexit.register(READER.close)
