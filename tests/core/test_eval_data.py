"""The files that `make eval-recall` reads: one that it cannot is refused with the reason."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.benchmarks.eval_recall import OWN_SETS, BadData, load

_TURN = {"speaker": "user", "dia_id": "D1:1", "text": "The heron nests in March."}
_SAID = {"session_1": [_TURN], "session_1_date_time": "1:56 pm on 8 May, 2023"}
_ASKED = {"question": "When?", "answer": "March", "category": 4, "evidence": ["D1:1"]}


def _file(folder: Path, text: str) -> Path:
    path = folder / "data.json"
    path.write_text(text, encoding="utf-8")
    return path


def _entry(**changes: object) -> str:
    return json.dumps([{"sample_id": "one", "conversation": _SAID, "qa": [_ASKED], **changes}])


def test_a_file_in_the_format_is_read(tmp_path: Path) -> None:
    (conversation,) = load(_file(tmp_path, _entry(qa=[{**_ASKED, "ability": "lookup"}, _ASKED])))
    assert [query.kind for query in conversation.queries] == ["lookup", "single-hop"]
    assert [(turn.speaker, turn.text) for turn in conversation.turns] == [
        ("user", "The heron nests in March.")
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("{", "is not JSON"),
        ("[]", "is not a list of conversations"),
        ('{"conversations": []}', "is not a list of conversations"),
        ("[1]", "is not in the LoCoMo format"),
        ('[{"messages": []}]', "no 'conversation'"),
        (_entry(qa=[{**_ASKED, "evidence": ["D9:9"]}]), "names one of its turns"),
        (_entry(conversation={**_SAID, "session_1_date_time": "yesterday"}), "LoCoMo format"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(BadData) as raised:
        load(path)
    assert str(path) in str(raised.value)
    assert reason in str(raised.value)


def test_the_command_names_the_file_that_is_missing(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.json"
    names = f"{_file(tmp_path, _entry())},{missing}"
    command = [sys.executable, "-m", "tests.benchmarks.eval_recall", names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        1,
        f"make eval-recall: There is no file {missing}.\n",
    )


def test_the_small_sets_are_the_ones_that_were_labelled_before_the_order_was_changed() -> None:
    sums = OWN_SETS[0].with_name("SHA256SUMS").read_text(encoding="utf-8").splitlines()
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in OWN_SETS}
    assert dict(line.split()[::-1] for line in sums) == digests
    assert all(
        20 <= sum(len(each.queries) for each in load(path)) <= 40
        and not sum(each.skipped for each in load(path))
        for path in OWN_SETS
    )


THREE = Path(__file__).parents[1] / "fixtures" / "long_mem_eval" / "three_questions.json"
"""Questions of our own in LongMemEval's format, with six sessions."""


def test_a_file_of_long_mem_eval_is_measured_by_session_and_type_of_question() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.eval_recall", str(THREE), "--no-chroma"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "three_questions: 3 questions" in done.stdout
    assert re.search(r"^  FTS5, porter +100\.0 ", done.stdout, re.M)
    assert re.search(r"^  recall +100\.0 ", done.stdout, re.M)
    for measure in ("R@5", "R@10", "nDCG"):
        assert f"  recall, {measure} by kind: single-session-user 100.0, " in done.stdout


def test_the_sessions_of_long_mem_eval_have_their_dates_and_what_answers() -> None:
    first, _, third = load(THREE)
    [question] = third.queries
    answering = {turn.session for turn in third.turns if turn.id in question.gold}
    assert sorted(each.partition("-")[2] for each in answering) == ["s-ferry", "s-ferry-2"]
    assert len(question.gold) == 2, "a marked turn counts, and not its whole session"
    assert {turn.at for turn in first.turns if turn.session.endswith("s-heron")} == {
        1_709_370_900_000_000
    }
    assert first.asked_at == 1_712_750_400_000_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"haystack_dates": []}, "shorter"),
        ({"haystack_dates": ["one day"] * 6}, "no date"),
        ({"haystack_sessions": [[{"role": "user"}]] * 6}, "no 'content'"),
        ({"answer_session_ids": []}, "names one of its turns"),
    ],
)
def test_a_broken_file_of_long_mem_eval_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, object], reason: str
) -> None:
    [entry, *_] = json.loads(THREE.read_text(encoding="utf-8"))
    with pytest.raises(BadData, match=reason):
        load(_file(tmp_path, json.dumps([{**entry, **change}])))
