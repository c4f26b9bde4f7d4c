"""The setting `embedder` names what runs here: a table on this machine, or MiniLM where it is; and
nothing is downloaded unless it may be.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2 import ONNXMiniLM_L6_V2
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tallystick import Actor, Tally
from tallystick.embedding import Model2VecEmbedder, StaticEmbedder, named_embedder, static
from tallystick.errors import EmbedderUnavailable, SettingsError
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]

ROWS: dict[str, Sequence[float]] = {
    "[UNK]": [9, 9, 9],
    "heron": [1, 0, 0],
    "bird": [0.9, 0.4, 0],
    "tax": [0, 0, 1],
}


def _table(folder: Path, *, rows: Sequence[Sequence[float]] = (), **tensors: np.ndarray) -> Path:
    folder.mkdir()
    vocabulary = {word: place for place, word in enumerate(ROWS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    embeddings = np.array(rows or list(ROWS.values()), dtype=np.float32)
    save_file({"embeddings": embeddings, **tensors}, folder / "model.safetensors")
    return folder


def test_a_table_on_this_machine_is_the_mean_of_its_rows_at_unit_length(tmp_path: Path) -> None:
    embedder = named_embedder(f"model2vec:{_table(tmp_path / 'small')}")
    assert getattr(embedder, "local", False)
    assert embedder.dimension == 3
    assert embedder.fingerprint.startswith("model2vec-small:")
    one, two, unknown, blank = embedder.embed(["heron tax", "bird of prey", "osprey", " "])
    assert one == pytest.approx([0.7071, 0, 0.7071], abs=1e-4)
    # What the table does not know says nothing.
    assert two == pytest.approx(np.array([0.9, 0.4, 0]) / np.hypot(0.9, 0.4), abs=1e-4)
    assert not unknown.any()
    assert not blank.any()


def test_weights_and_shared_rows_of_newer_tables_count(tmp_path: Path) -> None:
    shared = Model2VecEmbedder(
        _table(
            tmp_path / "shared",
            rows=[[0, 0], [1, 0], [0, 1]],
            mapping=np.array([0, 1, 1, 2], dtype=np.int64),
            weights=np.array([1, 1, 1, 3], dtype=np.float32),
        )
    )
    heron, bird, both = shared.embed(["heron", "bird", "bird tax"])
    assert (heron == bird).all()
    assert both == pytest.approx(np.array([1, 3]) / np.sqrt(10), abs=1e-4)
    assert shared.fingerprint != Model2VecEmbedder(_table(tmp_path / "plain")).fingerprint


def test_a_tally_recalls_by_the_embedder_that_its_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _table(tmp_path / "small")
    monkeypatch.setenv("TALLYSTICK_EMBEDDER", f"model2vec:{folder}")
    with Tally.open(tmp_path / "tally", background=False) as tally:
        anna = tally.bind(Actor(user="anna"))
        anna.remember("heron")
        anna.remember("tax")
        [first, *_] = anna.recall("bird")
        assert first.content == "heron"
        assert first.signals["vector"] > 0.9
    with Tally.open(tmp_path / "tally", background=False, embedder=StaticEmbedder()) as tally:
        assert tally.bind(Actor(user="anna")).recall("heron")[0].content == "heron"


def test_a_folder_that_is_no_table_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailable, match=r"no model\.safetensors and no tokenizer\.json"):
        named_embedder(f"model2vec:{tmp_path}")
    torn = _table(tmp_path / "torn")
    (torn / "tokenizer.json").write_text("{}")
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        named_embedder(f"model2vec:{torn}").embed(["heron"])
    of_two = _table(tmp_path / "two", rows=[[1, 0], [0, 1]])
    with pytest.raises(EmbedderUnavailable, match="two models"):
        named_embedder(f"model2vec:{of_two}").embed(["heron"])


def test_minilm_is_not_downloaded_unless_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ONNXMiniLM_L6_V2, "DOWNLOAD_PATH", tmp_path)
    monkeypatch.setattr(
        ONNXMiniLM_L6_V2, "_download", lambda *_, **__: pytest.fail("it was downloaded")
    )
    with pytest.raises(EmbedderUnavailable, match="allow_download"):
        named_embedder("minilm")
    monkeypatch.setenv("TALLYSTICK_EMBEDDER", "minilm")
    with pytest.raises(EmbedderUnavailable, match="allow_download"):
        Tally.open(tmp_path / "tally")


def test_an_unknown_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_EMBEDDER", "word2vec")
    with pytest.raises(SettingsError, match="embedder"):
        Tally.open(tmp_path / "tally")


def test_where_the_default_table_is_not_installed_words_and_structure_find_and_it_is_said_once(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wordllama" else find(name)
    )
    monkeypatch.setattr(static, "_tables", [])
    static._fingerprint.cache_clear()
    with open_tally() as tally:
        anna = tally.bind(Actor(user="anna", role="operator"))
        first = anna.remember("The heron nests in March.")
        assert any("EmbedderUnavailable" in warning for warning in first.warnings)
        second = anna.remember("The tide turns at ten.", kind="fact")
        assert not second.warnings
        said = [each for each in caplog.records if "embedder.unavailable" in each.message]
        assert len(said) == 1
        assert [hit.content for hit in anna.recall("heron")] == ["The heron nests in March."]
        assert anna.pack("When does the tide turn?").items
        anna.modify(second.id, content="The tide turns at noon.", reason="it moved")
        anna.forget(first.id, reason="no more")
        anna.recover(first.id, reason="it is back")
        assert len(anna.recall("heron nests")) == 1
        tally.drain()
        [finding] = [each for each in anna.operator.doctor() if each.check == "vectors"]
        assert (finding.status, "pip install" in finding.text) == ("notice", True)
        assert all(each.status != "problem" for each in anna.operator.doctor())
        anna.operator.doctor(repair=True, reason="to see")
    caplog.clear()
    with open_tally() as tally:  # in a process that only recalls, too
        for _ in range(2):
            assert tally.bind(Actor(user="anna")).recall("heron")
        said = [each for each in caplog.records if "embedder.unavailable" in each.message]
        assert len(said) == 1
    # With another embedder it has vectors, as soon as there is one.
    with open_tally(embedder=HashEmbedder()) as tally:
        assert tally.drain().embedded == 2
    static._fingerprint.cache_clear()
    monkeypatch.undo()
    with open_tally() as tally:
        assert tally.drain().embedded == 2
        assert tally.bind(Actor(user="anna")).recall("heron")[0].signals["vector"] > 0


def test_who_brings_an_embedder_loads_nothing_of_the_default_one() -> None:
    code = """
import sys
from tallystick import Tally
from tallystick.testing import HashEmbedder
with Tally.open(":memory:", background=False, embedder=HashEmbedder()) as tally:
    tally.bind().remember("The heron nests.")
    tally.bind().recall("heron")
    tally.bind().pack("heron")
    tally.drain()
names = ("wordllama", "tokenizers", "safetensors", "huggingface_hub", "chromadb")
print([name for name in names if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
