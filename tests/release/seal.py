"""Seal a release: notes with the head of the ledger, the digests of its files, and a signature.

The signature is that of receipts, `tallystick.recorder.signing`: Ed25519, over the bytes of
`SHA256SUMS`, which names every file of the release with its digest. `make release` runs this with
the Python of the environment that has the wheel, so that what is released signs itself.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import InvalidInput
from tallystick.recorder.signing import check_bytes, new_key, public_key_of, sign_bytes
from tallystick_cli.evidence_files import decide_on, verify_evidence

SUMS, SIGNATURE, PUBLIC_KEY, NOTES = (
    "SHA256SUMS",
    "SHA256SUMS.sig",
    "release-key.pub",
    "RELEASE-NOTES.md",
)
TEST_KEY = "it is signed with a test key: give yours, `make release KEY=FILE`"


@dataclass(frozen=True)
class Standing:
    """The verdict of a release, and what it lacks."""

    missing: tuple[str, ...]
    """Reasons to hold it; none where it may ship."""
    head: str | None = None
    """The head of the ledger; None where there is none."""
    entries: int = 0

    @property
    def verdict(self) -> str:
        """`ship`, or `hold` where anything is missing."""
        return "hold" if self.missing else "ship"


def standing(
    ledger: Path, gates: Sequence[str], *, commit: str, is_clean: bool, is_signed: bool
) -> Standing:
    """Return what a ledger says of a build of this commit: a receipt of each gate, with its
    evidence, lets it ship, where nothing was changed beside it and a key was given.
    """
    missing = [] if is_clean else ["the source has changes that are not committed"]
    if not is_signed:
        missing.append(TEST_KEY)
    if not ledger.exists():
        return Standing(("no gate was run: `make gates` writes the ledger", *missing))
    read = verify_evidence(ledger)
    missing += [f"the ledger was changed: {each.where} {each.problem}" for each in read.problems]
    decided = decide_on(read.entries, commit, gates, missing)
    return Standing(decided.missing, read.foil.head, read.foil.count)


def notes(version: str, commit: str, stands: Standing, changes: str) -> str:
    """Return the notes of a release, as Markdown."""
    lines = [f"# Tallystick {version}", "", f"- Commit: `{commit}`"]
    if stands.head is None:
        lines.append("- Ledger: none")
    else:
        lines.append(f"- Ledger: `{stands.head}`, the head of {stands.entries} entries")
    lines.append(f"- Verdict: **{stands.verdict}**")
    if stands.missing:
        lines += ["- Missing:", *(f"  - {each}" for each in stands.missing)]
    return "\n".join([*lines, "", f"## Changes in {version}", "", changes.strip(), ""])


def seal(folder: Path, private_key: bytes) -> None:
    """Write the digests of a release's files, their signature, and the public key of it. Raises
    InvalidInput for what is no Ed25519 key.
    """
    for name in (SUMS, SIGNATURE, PUBLIC_KEY):
        (folder / name).unlink(missing_ok=True)
    sums = "".join(f"{_digest(file)}  {file.name}\n" for file in sorted(folder.iterdir()))
    made = sign_bytes(sums.encode(), private_key)
    (folder / SUMS).write_text(sums, encoding="utf-8")
    (folder / SIGNATURE).write_bytes(made.signature)
    (folder / PUBLIC_KEY).write_bytes(made.public_key)


def problems(folder: Path, public_key: bytes) -> Iterator[str]:
    """Yield what of a release is not as the owner of this key signed it."""
    sums = (folder / SUMS).read_bytes()
    if not check_bytes(sums, (folder / SIGNATURE).read_bytes(), public_key_of(public_key)):
        yield f"{SUMS} was not signed with this key, or was changed"
    listed = dict(line.split("  ", 1)[::-1] for line in sums.decode().splitlines())
    files = {file.name: file for file in folder.iterdir()}
    for name in sorted(listed.keys() | files.keys() - {SUMS, SIGNATURE, PUBLIC_KEY}):
        if name not in files:
            yield f"{name} is missing"
        elif name not in listed:
            yield f"{name} is not in {SUMS}"
        elif _digest(files[name]) != listed[name]:
            yield f"{name} was changed"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Write the notes, seal the folder and check it; print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--changed", action="store_true", help="the source is not that of a commit")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--gates", nargs="+", required=True, help="that have to have passed")
    parser.add_argument("--changelog", type=Path, required=True)
    parser.add_argument("--key", type=Path, help="a private key in PEM, from `tally keygen`")
    given = parser.parse_args()
    stands = standing(
        given.ledger,
        given.gates,
        commit=given.commit,
        is_clean=not given.changed,
        is_signed=given.key is not None,
    )
    changes = given.changelog.read_text(encoding="utf-8").split("\n## ")[1].partition("\n")[2]
    text = notes(given.version, given.commit, stands, changes)
    (given.folder / NOTES).write_text(text, encoding="utf-8")
    try:
        seal(given.folder, new_key().private_key if given.key is None else given.key.read_bytes())
    except InvalidInput as error:
        raise SystemExit(f"{given.key}: {error}") from error
    if wrong := list(problems(given.folder, (given.folder / PUBLIC_KEY).read_bytes())):
        raise SystemExit("\n".join(wrong))
    print(f"Verdict: {stands.verdict}")
    for each in stands.missing:
        print(f"  missing: {each}")


if __name__ == "__main__":
    main()
