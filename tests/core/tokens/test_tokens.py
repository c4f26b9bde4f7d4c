"""Tokens: exact where an encoding stands on the machine, else an estimate that does not
undercount.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import json
import os
import random
import socket
import statistics
import string
import sys
import threading
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidInput
from tallystick.ports import TokenCounter
from tallystick.tokens import CachedCounter, PiecesCounter, counter_for
from tallystick.tokens.resolve import _TABLES

CORE = Path(__file__).parents[3] / "core"
ESTIMATE = PiecesCounter()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where encodings are copied to."""
    return tmp_path_factory.mktemp("encodings")


@pytest.fixture(scope="session")
def o200k(folder: Path) -> TokenCounter:
    """The exact counter of current OpenAI models."""
    counter = counter_for("gpt-5", cache_dir=folder)
    assert counter.exact
    return counter


# Resolving


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("gpt-5", "tiktoken:o200k_base"),
        ("gpt-4o-mini", "tiktoken:o200k_base"),
        ("o3", "tiktoken:o200k_base"),
        ("openai:gpt-5-mini", "tiktoken:o200k_base"),
        ("openai/gpt-4o", "tiktoken:o200k_base"),
        ("ft:gpt-4o:mine:x:1", "tiktoken:o200k_base"),
        ("groq/openai/gpt-oss-120b", "tiktoken:o200k_harmony"),
        ("gpt-4", "tiktoken:cl100k_base"),
    ],
)
def test_a_model_with_a_known_encoding_is_counted_exactly(
    model: str, method: str, folder: Path
) -> None:
    counter = counter_for(model, cache_dir=folder)

    assert (counter.method, counter.exact) == (method, True)


@pytest.mark.parametrize(
    "model", [None, "", "claude-sonnet-4-5", "anthropic:claude-opus-4", "gemini-2.5-pro", "mine"]
)
def test_a_model_without_one_is_estimated_and_says_so(model: str | None, folder: Path) -> None:
    counter = counter_for(model, cache_dir=folder)

    assert (counter.method, counter.exact) == ("estimate:pieces", False)


def test_exact_counts_are_those_of_the_encoding(o200k: TokenCounter) -> None:
    assert [o200k.count(text) for text in ("", "hello world", "123456", " 1")] == [0, 2, 2, 2]


def test_a_special_token_in_a_text_is_counted_as_text(o200k: TokenCounter) -> None:
    assert o200k.count("<|endoftext|>") > 1


def test_a_very_long_run_of_spaces_is_counted(o200k: TokenCounter) -> None:
    assert 1_000 < o200k.count("a" + " " * 1_000_000 + "b") < 100_000


def test_finding_an_encoding_changes_neither_environment_nor_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    environment, modules = dict(os.environ), {"llama_index.core", "litellm"} & set(sys.modules)

    counter_for("gpt-5", cache_dir=tmp_path)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "mine"))
    counter_for("gpt-4", cache_dir=tmp_path)

    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path / "mine")
    assert {**environment, "TIKTOKEN_CACHE_DIR": str(tmp_path / "mine")} == dict(os.environ)
    assert {"llama_index.core", "litellm"} & set(sys.modules) == modules


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No encoding stands on this machine: no cache, no package that ships one, none loaded before,
    no network.
    """
    import tempfile

    import tiktoken.registry

    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("tallystick.tokens.resolve._SHIPPED", ())
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tmp_path


def encoding_file(folder: Path) -> tuple[str, bytes]:
    """The name under which tiktoken keeps o200k_base, and its bytes."""
    counter_for("gpt-5", cache_dir=folder)
    name = hashlib.sha1(
        b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    ).hexdigest()
    return name, (folder / name).read_bytes()


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    return encoding_file(tmp_path_factory.mktemp("shipped"))


def test_without_an_encoding_the_estimate_steps_in(nowhere: Path) -> None:
    assert counter_for("gpt-5", cache_dir=nowhere / "cache").method == "estimate:pieces"


def test_a_download_that_fails_leaves_the_estimate(nowhere: Path) -> None:
    assert (
        counter_for("gpt-5", cache_dir=nowhere / "cache", allow_download=True).method
        == "estimate:pieces"
    )


def test_an_encoding_in_the_users_own_cache_is_used_where_it_is(
    nowhere: Path, shipped: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, body = shipped
    (nowhere / "theirs").mkdir()
    (nowhere / "theirs" / name).write_bytes(body)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(nowhere / "theirs"))

    assert counter_for("gpt-5", cache_dir=nowhere / "ours").exact
    assert not (nowhere / "ours").exists()


def test_an_encoding_beside_a_package_is_copied_and_then_needs_it_no_more(
    nowhere: Path, shipped: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, body = shipped
    package = nowhere / "packages" / "carrier_of_encodings"
    package.mkdir(parents=True)
    (package / name).write_bytes(body)
    monkeypatch.syspath_prepend(str(nowhere / "packages"))
    monkeypatch.setattr("tallystick.tokens.resolve._SHIPPED", (("carrier_of_encodings", "."),))

    assert counter_for("gpt-5", cache_dir=nowhere / "ours").exact
    assert [file.name for file in (nowhere / "ours").iterdir()] == [name]
    (package / name).unlink()
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    assert counter_for("gpt-5", cache_dir=nowhere / "ours").exact


def test_a_package_serves_even_where_no_copy_can_be_written(
    nowhere: Path, shipped: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, body = shipped
    package = nowhere / "packages" / "carrier_of_encodings"
    package.mkdir(parents=True)
    (package / name).write_bytes(body)
    (nowhere / "blocked").write_text("a file where a folder should be")
    monkeypatch.syspath_prepend(str(nowhere / "packages"))
    monkeypatch.setattr("tallystick.tokens.resolve._SHIPPED", (("carrier_of_encodings", "."),))

    assert counter_for("gpt-5", cache_dir=nowhere / "blocked" / "cache").exact
    assert (package / name).read_bytes() == body


def test_a_damaged_encoding_is_neither_used_nor_deleted(
    nowhere: Path, shipped: tuple[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, body = shipped
    (nowhere / name).write_bytes(body[:-10])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(nowhere))

    assert not counter_for("gpt-5", cache_dir=nowhere).exact
    assert (nowhere / name).read_bytes() == body[:-10]


@pytest.mark.parametrize("name", sorted(_TABLES))
def test_the_digests_are_those_that_tiktoken_checks(name: str) -> None:
    """Were they to differ, tiktoken would throw the file away and download it."""
    table, digest = _TABLES[name]
    source = inspect.getsource(
        getattr(importlib.import_module("tiktoken_ext.openai_public"), table)
    )

    assert f"encodings/{table}.tiktoken" in source
    assert digest in source


# The estimate


def slices(text: str, size: int = 600) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text) - size, size)]


SENTENCES = {
    "Russian": "Наша команда решила перенести релиз на следующую неделю, потому что тесты всё "
    "ещё падают. ",
    "Greek": "Η ομάδα αποφάσισε να μεταφέρει την έκδοση στην επόμενη εβδομάδα επειδή οι δοκιμές "
    "αποτυγχάνουν. ",
    "Arabic": "قرر الفريق تأجيل الإصدار إلى الأسبوع المقبل لأن الاختبارات ما زالت تفشل على "
    "الخادم. ",
    "Hebrew": "הצוות החליט לדחות את השחרור לשבוע הבא כי הבדיקות עדיין נכשלות בשרת. ",
    "Hindi": "टीम ने रिलीज़ को अगले सप्ताह तक टालने का निर्णय लिया क्योंकि परीक्षण अब भी विफल हो रहे हैं। ",
    "Thai": "ทีมงานตัดสินใจเลื่อนการเปิดตัวไปเป็นสัปดาห์หน้าเพราะการทดสอบบนเซิร์ฟเวอร์ยังล้มเหลวอยู่ ",
    "Chinese": "团队决定将发布推迟到下周,因为服务器上的测试仍然失败。请检查数据库设置并报告结果。",
    "Chinese, traditional": "團隊決定將發布推遲到下週,"
    "因為伺服器上的測試仍然失敗。請檢查資料庫設定並回報結果。",
    "Japanese": "サーバーのテストがまだ失敗しているため、"
    "チームはリリースを来週に延期することにしました。",
    "Korean": "서버 테스트가 아직 실패하고 있어서 팀은 출시를 다음 주로 미루기로 했습니다. ",
    "German": "Das Team hat beschlossen, die Veröffentlichung auf später zu verschieben, da "
    "Prüfungen scheitern. ",
    "French": "L'équipe a décidé de reporter la sortie à la semaine prochaine, car les tests "
    "échouent encore. ",
    "Finnish": "Tiimi päätti siirtää julkaisun ensi viikolle, koska palvelimen testit "
    "epäonnistuvat edelleen. ",
    "Vietnamese": "Nhóm đã quyết định dời bản phát hành sang tuần sau vì các bài kiểm tra vẫn "
    "thất bại. ",
    "Turkish": "Ekip, sunucudaki testler hâlâ başarısız olduğu için sürümü gelecek haftaya "
    "ertelemeye karar verdi. ",
    "Amharic": "ቡድኑ ልቀቱን ወደ ሚቀጥለው ሳምንት ለማስተላለፍ ወስኗል። እባክዎ የውሂብ ጎታውን ቅንብሮች ያረጋግጡ። ",
    "Tamil": "சேவையகத்தில் சோதனைகள் இன்னும் தோல்வியடைவதால் குழு வெளியீட்டை ஒத்திவைக்க முடிவு செய்தது. ",
    "Georgian": "გუნდმა გადაწყვიტა გამოშვების გადატანა მომავალ კვირას, რადგან ტესტები კვლავ ვერ "
    "სრულდება. ",
    "Burmese": "ဆာဗာပေါ်ရှိ စမ်းသပ်မှုများ မအောင်မြင်သေးသောကြောင့် အဖွဲ့သည် ထုတ်ဝေမှုကို ရွှေ့ရန် ဆုံးဖြတ်ခဲ့သည်။ ",
}

EMOJI = ["😀", "🎉", "👍🏽", "🚀", "❤️", "👨\u200d👩\u200d👧", "🇩🇪", "✅", "🔥", "ok", "done"]
KINDS = """
    prose PROSE code JSON indented_JSON digests base64 UUIDs random_words
    RANDOM_WORDS numbers decimals emoji punctuation white_space
"""


@cache
def sample() -> dict[str, list[str]]:
    """Texts of about 600 characters of each kind that an agent meets."""
    chance = random.Random(11)
    code = "\n".join(file.read_text(encoding="utf-8") for file in sorted(CORE.rglob("*.py")))
    prose = " ".join(part.replace("\n", " ") for part in code.split('"""')[1::2])

    def some(make: Callable[[], str]) -> list[str]:
        return [make() for _ in range(40)]

    def words(alphabet: str) -> str:
        return " ".join(
            "".join(chance.choices(alphabet, k=chance.randrange(3, 14))) for _ in range(60)
        )

    def row() -> dict[str, object]:
        return {
            "id": str(uuid.UUID(int=chance.getrandbits(128))),
            "createdAt": "2026-11-20T15:04:05Z",
            "total": chance.random() * 100,
            "note": "the refund was approved",
            "ok": chance.random() < 0.5,
            "tags": ["a", None, chance.randrange(10**6)],
        }

    return {
        "prose": slices(prose)[::10],
        "PROSE": slices(prose.upper())[::10],
        "code": slices(code)[::50],
        "JSON": slices(json.dumps([row() for _ in range(150)])),
        "indented_JSON": slices(json.dumps([row() for _ in range(100)], indent=2)),
        "digests": some(lambda: "".join(chance.choices("0123456789abcdef", k=600))),
        "base64": some(lambda: base64.b64encode(chance.randbytes(450)).decode()),
        "UUIDs": some(
            lambda: "\n".join(str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(16))
        ),
        "random_words": some(lambda: words(string.ascii_lowercase)),
        "RANDOM_WORDS": some(lambda: words(string.ascii_uppercase)),
        "numbers": some(
            lambda: " ".join(
                str(chance.randrange(10 ** chance.randrange(1, 12))) for _ in range(90)
            )
        ),
        "decimals": some(lambda: ", ".join(repr(chance.random()) for _ in range(30))),
        "emoji": some(lambda: " ".join(chance.choices(EMOJI, k=120))),
        "punctuation": some(lambda: "".join(chance.choices(string.punctuation, k=600))),
        "white_space": some(
            lambda: "".join(chance.choices([" ", "  ", "\n", "\t", "\r\n", "x"], k=400))
        ),
        **{
            name: [(line * 9)[at : at + 600] for at in range(0, 60, 3)]
            for name, line in SENTENCES.items()
        },
    }


@pytest.mark.parametrize("kind", [*KINDS.split(), *SENTENCES])
def test_at_most_one_text_in_twenty_of_any_kind_is_estimated_too_low(
    kind: str, o200k: TokenCounter
) -> None:
    """Ratio of estimate to o200k_base over texts of 600 characters: at least 1 at the fifth
    percentile.
    """
    ratios = sorted(ESTIMATE.count(text) / o200k.count(text) for text in sample()[kind])

    assert len(ratios) >= 20
    assert ratios[len(ratios) // 20] >= 1.0


@pytest.mark.parametrize(
    ("kind", "most"), [("prose", 1.3), ("code", 1.5), ("JSON", 1.3), ("Chinese", 1.7)]
)
def test_the_estimate_wastes_little_of_a_budget(
    kind: str, most: float, o200k: TokenCounter
) -> None:
    assert (
        statistics.median(ESTIMATE.count(text) / o200k.count(text) for text in sample()[kind])
        <= most
    )


@given(st.text())
def test_an_estimate_is_a_whole_number_that_is_zero_for_nothing_only(text: str) -> None:
    count = ESTIMATE.count(text)

    assert type(count) is int
    assert (count == 0) == (text == "")
    assert ESTIMATE.count(text) == count


@given(text=st.text())
def test_an_exact_count_takes_any_text(o200k: TokenCounter, text: str) -> None:
    assert 0 <= o200k.count(text) <= len(text.encode("utf-8", "surrogatepass"))


# Remembering


class Counting:
    """A counter that keeps what it was asked."""

    method = "test:characters"
    exact = True

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text)


def test_a_text_is_counted_once() -> None:
    inner = Counting()
    cached = CachedCounter(inner)

    counts = [cached.count(text) for text in ("", "a", "b" * 500, "a", "", "b" * 500)]

    assert counts == [0, 1, 500, 1, 0, 500]
    assert inner.asked == ["", "a", "b" * 500]
    assert (cached.method, cached.exact) == ("test:characters", True)


def test_only_the_counts_used_last_are_remembered() -> None:
    inner = Counting()
    cached = CachedCounter(inner, cache_size=2)

    for text in "abacab":
        cached.count(text)

    assert inner.asked == ["a", "b", "c", "b"]


def test_remembering_less_than_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput):
        CachedCounter(Counting(), cache_size=-1)


@given(st.lists(st.text(max_size=200), max_size=30))
def test_a_remembered_count_is_the_count(texts: list[str]) -> None:
    cached = CachedCounter(Counting(), cache_size=3)

    assert [cached.count(text) for text in texts] == [len(text) for text in texts]


def test_threads_share_one_memory_of_counts() -> None:
    cached = CachedCounter(ESTIMATE, cache_size=8)
    texts = [f"note {number} " * number for number in range(30)]
    expected = [ESTIMATE.count(text) for text in texts]
    seen: list[list[int]] = []

    def work() -> None:
        seen.extend([cached.count(text) for text in texts] for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == [expected] * 80
