"""Engines of others that find secrets, in the shape that redaction takes. Each loads on first use
and runs here.

Kingfisher (extra `secrets`) knows some thousand rules of one service each; our own table stays and
is joined by them. Only its scanning is used: it can also ask services whether a credential is good,
which nothing here ever does.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tallystick.errors import require
from tallystick.policy.redaction import Finding

_NOT_IN_A_KIND = re.compile(r"[^a-z0-9_]+")


class KingfisherFinder:
    """Finds what Kingfisher calls a secret. Thread-safe; one is enough for a process.

    Its rules are compiled with the first text, which takes seconds; with `cache_dir` they are kept
    there for the next process, without it nothing is written. Raises MissingExtra where the extra
    is not installed.
    """

    def __init__(self, *, cache_dir: str | os.PathLike[str] | None = None) -> None:
        require("kingfisher_sdk", extra="secrets")
        self._cache = cache_dir
        self._guard = threading.Lock()
        self._scanner: Any = None

    def __call__(self, text: str) -> Iterator[Finding]:
        """Yield the secrets in `text` with their places."""
        # Half a character has no UTF-8 form; a question mark takes its place, so that the others
        # stay where they are.
        data = text.encode("utf-8", "replace")
        with self._guard:
            if self._scanner is None:
                self._scanner = self._new_scanner()
            findings = self._scanner.scan(data)
        for finding in findings:
            if finding.visible:
                start, end = (
                    int(finding.location[name]) for name in ("start_offset", "end_offset")
                )
                if finding.secret.encode() not in data[start:end] and not finding.is_base64_encoded:
                    # It took the text for UTF-16, and its places are those of what it read: then
                    # all of it goes.
                    start, end = 0, len(data)
                begins = len(data[:start].decode("utf-8", "ignore"))
                yield Finding(
                    begins,
                    begins + len(data[start:end].decode("utf-8", "ignore")),
                    _kind(finding.rule_id),
                )

    def _new_scanner(self) -> Any:
        engine = import_module("kingfisher_sdk")
        rules = (
            engine.Rules(cache=False)
            if self._cache is None
            else engine.Rules(cache_dir=os.fspath(self._cache))
        )
        return engine.Scanner(rules)


def _kind(rule_id: str) -> str:
    """The name of a rule as it may stand in a placeholder."""
    return _NOT_IN_A_KIND.sub("_", rule_id.rpartition(".")[2].lower()).strip("_") or "secret"
