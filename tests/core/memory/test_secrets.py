"""No secret comes through the door of memory, and none goes from there to a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick import BoundTally, Tally
from tallystick.compiler.outlines import FRAMED, outline
from tallystick.errors import InvalidInput
from tallystick.kit.rendering import framed_hits, hits_for_model
from tallystick.memory import Put
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import Actor, ContextItem, NewMemory, Proposal, ProposalContent, SourceRef
from tallystick.settings import Settings
from tallystick.storage.engine import integrity
from tallystick.storage.rows import journal, proposals, scopes
from tallystick.tally.services import services_of
from tallystick.upkeep.proof import search_remains

ADA = Actor(user="ada")
ROOT = Actor(user="root", role="operator")
APOLLO = Actor(user="ada", projects=frozenset({"apollo"}))
TOKEN = "ghp_a8Kd02JdLs93Mf7QpXz41VbNcTgHyUeWo6Ri"
OTHER = "ghp_b9Le13KeMt04Ng8RqYa52WcOdUhIzVfXp7Sj"
SAID = f"My token for deploys is {TOKEN}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tally"


@pytest.fixture
def bound(folder: Path) -> Iterator[BoundTally]:
    with Tally.open(folder, background=False) as tally:
        yield tally.bind(ADA)


def _settings(secrets_in_memory: Any) -> Settings:
    return Settings.read(secrets_in_memory=secrets_in_memory)


def _holds(folder: Path, text: str) -> bool:
    return any(
        text.encode() in (Path(root) / name).read_bytes()
        for root, _, names in os.walk(folder)
        for name in names
    )


def test_a_secret_is_in_no_file_whatever_field_it_came_in(folder: Path) -> None:
    with Tally.open(folder, background=False) as tally:
        bound = tally.bind(ADA)
        kept = bound.remember(
            SAID,
            subject=f"deploys with {TOKEN}",
            category=TOKEN,
            speaker=f"ada {TOKEN}",
            tags=[TOKEN],
            attributes={"api_key": "sommerregen77", "caption": TOKEN},
            entities=[TOKEN],
            source=SourceRef(source_type="file", uri=f"https://x.org/?key={TOKEN}"),
        )
        memory = bound.get(kept.id)
        bound.modify(kept.id, content=f"It is {OTHER} now.", reason="new")
        tally.drain()

    assert memory.content.startswith("My token for deploys is [redacted:github_token:")
    assert kept.warnings == (
        "secrets were replaced before it was stored: 1 credential, 8 github_token",
    )
    assert not _holds(folder, TOKEN[4:])
    assert not _holds(folder, OTHER[4:])
    assert not _holds(folder, "sommerregen77")


def test_memories_with_different_secrets_are_no_duplicates(bound: BoundTally) -> None:
    first = bound.remember(SAID)
    again = bound.remember(SAID)
    other = bound.remember(SAID.replace(TOKEN, OTHER))
    turn: dict[str, Any] = {"conversation": "c", "position": 0}
    same = [bound.remember(SAID, **turn).status for _ in range(2)]

    assert (again.status, again.id) == ("duplicate", first.id)
    assert other.status == "created"
    assert bound.get(other.id).content != bound.get(first.id).content
    assert same == ["created", "duplicate"]


def test_an_answer_under_a_key_is_given_again(bound: BoundTally) -> None:
    first = bound.remember(SAID, idempotency_key="k")

    assert bound.remember(SAID, idempotency_key="k") == first


def test_a_change_says_that_secrets_were_replaced(bound: BoundTally) -> None:
    kept = bound.remember("The token is in the vault.")

    change = bound.modify(kept.id, content=SAID, attributes={"note": TOKEN}, reason="r")

    assert change.warnings == ("secrets were replaced before it was stored: 2 github_token",)
    assert TOKEN not in str(bound.get(kept.id))


def test_the_text_in_place_of_a_redacted_one_has_no_secret(bound: BoundTally) -> None:
    kept = bound.remember("The token is in the vault.")
    options: dict[str, Any] = {"reason": "r", "replacement": SAID}
    preview = bound.corrections.make(kept.id, "redact", **options)

    bound.corrections.make(
        kept.id, "redact", mode="apply", confirm_token=preview.confirm_token, **options
    )

    assert TOKEN not in str(bound.get(kept.id))


def test_secrets_are_refused_where_the_setting_says_so(folder: Path) -> None:
    with Tally.open(folder, background=False, settings=_settings("refuse")) as tally:
        bound = tally.bind(ADA)
        kept = bound.remember("The token is in the vault.")

        with pytest.raises(InvalidInput, match=r"1 github_token.*secrets_in_memory") as refusal:
            bound.remember_many([NewMemory(content="all or none"), NewMemory(content=SAID)])
        with pytest.raises(InvalidInput, match="secrets_in_memory"):
            bound.modify(kept.id, content=SAID, reason="r")

        assert TOKEN not in str(refusal.value)
        assert [memory.content for memory in bound.memories()] == ["The token is in the vault."]


def test_a_move_of_the_setting_unmasks_nothing(folder: Path) -> None:
    with Tally.open(folder, background=False) as tally:
        masked = tally.bind(ADA).remember(SAID)
    with Tally.open(folder, background=False, settings=_settings("keep")) as tally:
        bound = tally.bind(ADA)
        kept = bound.remember(SAID)

        assert TOKEN not in bound.get(masked.id).content
        assert bound.get(kept.id).content == SAID
        assert not kept.warnings


def test_what_is_kept_reaches_no_model(folder: Path) -> None:
    with Tally.open(folder, background=False, settings=_settings("keep")) as tally:
        bound = tally.bind(ADA)
        long = f"{'The deploys of the heron. ' * 200}{SAID} and {'nothing else. ' * 200}"
        kept = bound.remember(SAID, speaker=f"ada {TOKEN}", attributes={"caption": TOKEN})
        bound.remember(long)
        hits = bound.recall("token for deploys")
        request = ContextItem(id="q", kind="user_msg", content="Which token?")
        with bound.run("support") as run, run.step("model_call"):
            bound.working.set("facts", [SAID])
            compiled = bound.compile([*hits, request], budget=10_000, target=FRAMED)
        shown = [
            framed_hits(bound, hits),
            outline(compiled).context,
            str(compiled),
            str(hits_for_model(bound, hits)),
            bound.pack("token for deploys").text,
            bound.wake().text,
            *(
                str(MEMORY_TOOLS[name].function(bound, *arguments))
                for name, arguments in (
                    ("memory_search", ("token for deploys",)),
                    ("memory_get", (kept.id,)),
                    ("memory_list", ()),
                )
            ),
        ]

        assert len(hits) == 2
        assert TOKEN in str(hits)
        assert [TOKEN in text for text in shown] == [False] * len(shown)


def test_a_copy_is_a_new_way_into_memory(folder: Path) -> None:
    """A copy of what was kept has no secret, and follows its origin all the same."""
    into: dict[str, Any] = {"into": "project:apollo", "reason": "r"}
    with Tally.open(folder, background=False, settings=_settings("keep")) as tally:
        kept = [tally.bind(APOLLO).remember(f"{word} {SAID}").id for word in ("First", "Second")]
    with Tally.open(folder, background=False) as tally:
        bound = tally.bind(APOLLO)
        copies = []
        for cross, origin in zip(
            (bound.corrections.promote, bound.corrections.share), kept, strict=True
        ):
            preview = cross(origin, **into)
            token = preview.confirm_token
            done = cross(origin, **into, mode="apply", confirm_token=token)
            assert done.warnings == preview.warnings
            assert "1 github_token" in done.warnings[0]
            copies.append(str(done.copy_id))
        texts = [bound.get(each).content for each in (*kept, *copies)]
        assert [TOKEN in text for text in texts] == [True, True, False, False]

        bound.modify(kept[1], tags=["deploys"], reason="r")
        assert bound.get(copies[1]).tags == ("deploys",)
        assert TOKEN not in bound.get(copies[1]).content
        bound.modify(kept[1], content="It is in the vault.", reason="r")
        assert bound.get(copies[1]).content == "It is in the vault."
    with (
        Tally.open(folder, background=False, settings=_settings("refuse")) as tally,
        pytest.raises(InvalidInput, match="secrets_in_memory"),
    ):
        tally.bind(APOLLO).corrections.promote(kept[0], **into)


def _exported(tally: Tally, out: Path) -> list[str]:
    """Export memories that hold secrets, each in another place; return their ids."""
    bound = tally.bind(ADA)
    bound.items.put([Put(("a",), "k", {"note": "live state"})])
    source = SourceRef(source_type="file", uri=f"https://x.org/?key={TOKEN}")
    now = bound.remember(SAID, source=source, tags=[OTHER], idempotency_key="k")
    once = bound.remember(f"{SAID}, once.")
    bound.modify(once.id, content="It is in the vault.", reason=f"it was {TOKEN}")
    gone = bound.remember(f"{SAID}, forgotten.")
    bound.forget(gone.id, reason="r")
    proposal = Proposal(
        id="1",
        scope=ADA.private_scope,
        action="ADD",
        kind="fact",
        reason="review_mode",
        content=ProposalContent(content=SAID),
        confidence=90,
        derived_from=(now.id,),
        provider="rules",
        created_by=ADA.identity(),
        created_at=1,
    )
    services_of(tally).store.database.write(
        lambda tx: proposals.add(tx, proposal, scope=scopes.ensure(tx, ADA.private_scope)),
        name="propose",
    )
    bound.operator.export(out, scopes=["private:ada"])
    return [now.id, once.id, gone.id]


def test_an_import_unmasks_nothing(open_tally: Callable[..., Tally], tmp_path: Path) -> None:
    """A secret is destroyed in every version, source and proposal, and the chains verify."""
    out = tmp_path / "export"
    with Tally.open(tmp_path / "kept", background=False, settings=_settings("keep")) as tally:
        ids = _exported(tally, out)
    with open_tally() as tally:
        done = tally.bind(ROOT).operator.import_from(out)
        bound = tally.bind(ADA)
        texts = [bound.get(each).content for each in ids[:2]]
        masked = bound.remember(SAID)
        remains = search_remains(services_of(tally).memory, ROOT, [], [TOKEN[4:], OTHER[4:]])
        with services_of(tally).store.database.read() as connection:
            problems = journal.verify_stream(connection, "scope:private:ada")
            altered, _ = integrity.altered_versions(connection)
            *_, imported = journal.rows_of(connection, "tally")
            assert journal.read_row(imported).reason == done.warnings[0]

        assert done.warnings == (
            "secrets were replaced before it was stored, in 3 memories, 3 sources, 1 proposals: "
            "2 github_token",
        )
        assert texts == [bound.get(masked.id).content, "It is in the vault."]
        assert masked.status == "duplicate"
        assert [entry.event for entry in bound.history(ids[0])] == ["ADD", "ERASE", "SEEN"]
        assert "github_token" in str(bound.reviews.get("1").proposal.content)
        assert remains is not None
        assert not remains.problems
        assert not problems
        assert not altered
        assert bound.recall("token for deploys")


def test_an_import_follows_the_setting(tmp_path: Path) -> None:
    out = tmp_path / "export"
    with Tally.open(tmp_path / "kept", background=False, settings=_settings("keep")) as tally:
        ids = _exported(tally, out)
    with Tally.open(tmp_path / "keep", background=False, settings=_settings("keep")) as tally:
        assert not tally.bind().operator.import_from(out).warnings
        assert tally.bind(ADA).get(ids[0]).content == SAID
    with Tally.open(tmp_path / "refuse", background=False, settings=_settings("refuse")) as tally:
        with pytest.raises(InvalidInput, match=rf"3 memories .*{ids[0]}.*Nothing was"):
            tally.bind().operator.import_from(out)
        assert tally.bind(ADA).memories() == []


def test_an_import_leaves_reasons_and_recordings_as_they_were_kept(tmp_path: Path) -> None:
    """What no memory holds is not memory's: a reason is a person's, a recording has a retention."""
    out, reason = tmp_path / "export", f"it was {TOKEN}"
    full = Settings(retention="full_payloads")
    with Tally.open(tmp_path / "from", background=False, settings=full) as tally:
        bound = tally.bind(ADA)
        memory = bound.remember("The heron nests by the lake.")
        bound.forget(memory.id, reason=reason)
        with bound.run("deployer") as run, run.step("tool_call", name="deploy") as step:
            step.record("request", {"token": OTHER})
        bound.operator.export(out, scopes=["private:ada"])
    with Tally.open(tmp_path / "into", background=False) as tally:
        done = tally.bind().operator.import_from(out)
        bound = tally.bind(ADA)

        assert done.warnings == ()
        assert bound.history(memory.id)[-1].reason == reason
        assert OTHER in str([entry.payload for entry in bound.recordings.entries(step.id)])
        assert bound.recordings.verify(run.id).ok


def test_a_model_reads_that_its_secret_was_replaced(bound: BoundTally) -> None:
    stored = MEMORY_TOOLS["memory_store"].function(bound, SAID)
    modified = MEMORY_TOOLS["memory_modify"].function(
        bound, stored["id"], "r", 1, content=f"It is {OTHER} now."
    )

    for answer in (stored, modified):
        assert answer["warnings"] == ["secrets were replaced before it was stored: 1 github_token"]


def test_an_item_of_a_store_is_kept_as_it_is(bound: BoundTally) -> None:
    bound.items.put([Put(("a",), "k", {"note": SAID}, index=("note",))])

    [item] = bound.items.get([(("a",), "k")])

    assert item is not None
    assert item.value == {"note": SAID}
    hits = bound.recall("token for deploys", namespace=("a",))
    assert len(hits) == 1
    assert TOKEN not in framed_hits(bound, hits)
