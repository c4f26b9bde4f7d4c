"""Token counters by model: an encoding that is on the machine already, else the estimate.

tiktoken carries no encodings and would download them. They are looked for where they may already
stand: in tiktoken's own cache, in ours, and beside installed packages that ship them, which are not
imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from tallystick.ports import TokenCounter
from tallystick.tokens.estimate import CachedCounter, PiecesCounter

if TYPE_CHECKING:
    from tiktoken import Encoding

_LONG_SPACE = re.compile(r"\s{10000}")


class TiktokenCounter:
    """Counts as models with this encoding do. Thread-safe.

    Text that looks like a special token (`<|endoftext|>`) is counted as the text it is.
    """

    exact = True

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self.method = f"tiktoken:{encoding.name}"

    def count(self, text: str) -> int:
        """Tokens in `text`. A run of 10,000 spaces is counted by itself, which may add one
        token.
        """
        # The encoder's pattern overflows its stack on a run of several 100,000 spaces, past any
        # handling.
        total, start = 0, 0
        for space in _LONG_SPACE.finditer(text):
            total += len(self._encoding.encode_ordinary(text[start : space.end()]))
            start = space.end()
        return total + len(self._encoding.encode_ordinary(text[start:] if start else text))


_TABLES = {
    "o200k_base": (
        "o200k_base",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "o200k_harmony": (
        "o200k_base",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "cl100k_base",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "p50k_base": ("p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),
    "p50k_edit": ("p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),
    "r50k_base": ("r50k_base", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),
}
"""Encoding to the file it is made of and that file's SHA-256, as tiktoken checks it."""

_SHIPPED = (
    ("llama_index", "core/_static/tiktoken_cache"),
    ("litellm", "litellm_core_utils/tokenizers"),
)
"""Packages that carry encodings, and where."""

_CACHE_SETTINGS = ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR")
_guard = threading.Lock()


def counter_for(
    model: str | None, *, cache_dir: Path, allow_download: bool = False
) -> TokenCounter:
    """The counter for `model`, remembering its counts: exact if the model's encoding can be had,
    else the estimate.

    `model` may carry a provider (`openai:gpt-5`, `openai/gpt-4o`). Models without a published
    encoding, Claude among them, and None get the estimate, which is marked as such. A found
    encoding is copied into `cache_dir`; a download happens only with `allow_download`, and where it
    fails the estimate steps in.
    """
    name = _encoding_of(model) if model else None
    encoding = _load(name, cache_dir, allow_download) if name is not None else None
    return CachedCounter(TiktokenCounter(encoding) if encoding is not None else PiecesCounter())


def _encoding_of(model: str) -> str | None:
    from tiktoken.model import encoding_name_for_model

    bare = model.rsplit("/", 1)[-1]
    # `openai:gpt-5` names a provider first, a fine-tuned model (`ft:gpt-4o:…`) does not.
    for name in dict.fromkeys((model, bare, bare.split(":", 1)[-1])):
        try:
            return encoding_name_for_model(name)
        except KeyError:
            continue
    return None


def _load(name: str, cache_dir: Path, allow_download: bool) -> Encoding | None:
    if name not in _TABLES:
        return None
    table, digest = _TABLES[name]
    # tiktoken names a cached file by the SHA-1 of its address, and deletes one whose digest
    # differs: so it is shown only folders whose file was checked, and never those of other
    # packages.
    file = hashlib.sha1(
        f"https://openaipublic.blob.core.windows.net/encodings/{table}.tiktoken".encode(),
        usedforsecurity=False,
    ).hexdigest()
    for folder in (*_own_caches(), cache_dir):
        if _has_digest(folder / file, digest):
            return _load_from(folder, name)
    for folder in _list_shipped():
        if _has_digest(folder / file, digest):
            return _load_from(_copy_file(folder / file, cache_dir), name)
    if allow_download:
        try:
            return _load_from(cache_dir, name)
        except (
            OSError,
            ValueError,
        ):  # no network, a refused or a damaged answer: the estimate needs none
            return None
    return None


def _own_caches() -> Iterator[Path]:
    """Return the folder in which tiktoken itself looks."""
    for setting in _CACHE_SETTINGS:
        if os.environ.get(setting):
            yield Path(os.environ[setting])
    yield Path(tempfile.gettempdir()) / "data-gym-cache"


def _list_shipped() -> Iterator[Path]:
    for package, inside in _SHIPPED:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(place) / inside


def _has_digest(file: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def _copy_file(file: Path, cache_dir: Path) -> Path:
    """The folder to load from: `cache_dir` with a copy of `file`, or, where it cannot be written,
    the file's own.
    """
    aside = cache_dir / f"{file.name}.{uuid4().hex}"
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(file.read_bytes())
        aside.replace(cache_dir / file.name)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        return file.parent  # checked a moment ago, so tiktoken will only read it
    return cache_dir


def _load_from(folder: Path, name: str) -> Encoding:
    import tiktoken

    with _cache_setting(folder):
        return tiktoken.get_encoding(name)


@contextmanager
def _cache_setting(folder: Path) -> Iterator[None]:
    """Point tiktoken at `folder` for the moment of loading; the environment is then as it was."""
    with _guard:
        setting = _CACHE_SETTINGS[0]
        before = os.environ.get(setting)
        os.environ[setting] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ[setting]
            else:
                os.environ[setting] = before
