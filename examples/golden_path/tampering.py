"""Attempts on a copy of a receipt by somebody with write access, and the answers of `verify`."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from tallystick.recorder import verify_bundle
from tallystick.records import Foil, Verification

Members = dict[str, bytes]


def attempts(receipt: bytes, step_id: str, foil: Foil) -> Iterator[tuple[str, Verification]]:
    """Yield each attempt in words, with the verification of the copy; the foil is the half that was
    stored elsewhere.
    """
    for title, tamper in (
        ("What the model answered in the patch step is another text now", _reword(step_id)),
        ("The receipt of the patch step says that it failed", _mark_failed(step_id)),
        ("The end is cut off so neatly that the copy alone looks whole", _cut_off),
    ):
        yield title, verify_bundle(_pack(tamper(_members(receipt))), foil=foil)


def _reword(step_id: str) -> Callable[[Members], Members]:
    def tamper(members: Members) -> Members:
        rows = [json.loads(line) for line in members["entries.jsonl"].splitlines()]
        (place,) = (
            row["payload"] for row in rows if (row["step_id"], row["kind"]) == (step_id, "response")
        )
        start, end, blob = place["start"], place["start"] + place["size"], members["payloads.bin"]
        new_text = blob[start:end].replace(b"ROUND_HALF_EVEN", b"ROUND_HALF_DOWN")
        if new_text == blob[start:end]:
            new_text = blob[start:end].swapcase()
        return {**members, "payloads.bin": blob[:start] + new_text + blob[end:]}

    return tamper


def _mark_failed(step_id: str) -> Callable[[Members], Members]:
    def tamper(members: Members) -> Members:
        chain = [json.loads(line) for line in members["chain.jsonl"].splitlines()]
        for entry in chain:
            body = json.loads(entry["body"])
            if body["subject_id"] == step_id:
                entry["body"] = entry["body"].replace('"status":"completed"', '"status":"failed"')
        return {**members, "chain.jsonl": _lines(chain)}

    return tamper


def _cut_off(members: Members) -> Members:
    """Cut off everything after the fourth receipt, so neatly that the copy alone looks whole."""
    chain = [json.loads(line) for line in members["chain.jsonl"].splitlines()][:5]
    subject_ids = {json.loads(entry["body"])["subject_id"] for entry in chain}
    run_file = json.loads(members["run.json"])
    run_file["run"] |= {"status": "running", "ended_at": None, "gaps": 0}
    run_file["foil"] |= {"count": len(chain), "head": chain[-1]["digest"]}
    rows = {
        name: _lines(
            [
                row
                for row in map(json.loads, members[name].splitlines())
                if row["step_id"] in subject_ids
            ]
        )
        for name in ("steps.jsonl", "entries.jsonl")
    }
    places = [json.loads(line)["payload"] for line in rows["entries.jsonl"].splitlines()]
    end = max(place["start"] + place["size"] for place in places if place is not None)
    return {
        **members,
        **rows,
        "payloads.bin": members["payloads.bin"][:end],
        "run.json": json.dumps(run_file).encode(),
        "chain.jsonl": _lines(chain),
    }


def _members(receipt: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(receipt)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pack(members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return out.getvalue()


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)
