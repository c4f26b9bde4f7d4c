"""Proposals in storage: moved once, read by scope, and erased with what they were drawn from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tallystick import Actor, Tally
from tallystick.records import OutboundCall, Proposal, ProposalContent
from tallystick.storage import Connection
from tallystick.storage.rows import outbound_calls, proposals, scopes
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna", role="operator")


def _propose(tally: Tally, proposal_id: str, content: str, **fields: object) -> Proposal:
    proposal = Proposal.load(
        {
            "id": proposal_id,
            "scope": ANNA.private_scope,
            "action": "ADD",
            "kind": "preference",
            "reason": "review_mode",
            "content": ProposalContent(content=content).dump(),
            "confidence": 90,
            "provider": "rules",
            "created_at": int(proposal_id),
            "created_by": ANNA.identity(),
            **fields,
        }
    )

    def unit(tx: Connection) -> None:
        proposals.add(tx, proposal, scope=scopes.ensure(tx, ANNA.private_scope))

    services_of(tally).store.database.write(unit, name="propose")
    return proposal


def test_a_proposal_is_read_back_as_it_was_made(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        first = _propose(tally, "1", "Anna likes rain.", sources=["s"], derived_from=["m"])
        second = _propose(tally, "2", "Anna likes snow.", target="m", target_version=3)

        with services_of(tally).store.database.read() as connection:
            page = proposals.of_scope(connection, ANNA.private_scope, ("pending",), limit=1)
            rest = proposals.of_scope(connection, ANNA.private_scope, limit=9, after=(1, "1"))
            other = proposals.of_scope(connection, Actor(user="bob").private_scope, limit=9)

        assert [stored.record for stored in page] == [first]
        assert [stored.record for stored in rest] == [second]
        assert other == []


def test_a_proposal_is_decided_once(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        _propose(tally, "1", "Anna likes rain.")
        database = services_of(tally).store.database

        def reject(tx: Connection) -> bool:
            return proposals.move(
                tx,
                "1",
                before=("pending", "deferred"),
                after="rejected",
                decided_by=ANNA.identity(),
                decided_at=5,
                decided_reason="It was a joke.",
            )

        assert [database.write(reject, name="reject") for _ in range(2)] == [True, False]
        with database.read() as connection:
            stored = proposals.find(connection, "1")
        assert stored is not None
        assert stored.record.state == "rejected"
        assert stored.record.decided_reason == "It was a joke."


def test_erasing_a_memory_erases_the_proposals_that_quote_it_or_were_drawn_from_it(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        memory = anna.remember("My heron Ada eats seventy herrings a day.")
        _propose(tally, "1", "Anna feeds her bird.", derived_from=[memory.id])
        _propose(tally, "2", "My heron Ada eats seventy herrings a day.")
        _propose(tally, "3", "Anna likes rain.")

        preview = anna.operator.erase([memory.id], reason="she asked")
        result = anna.operator.erase(
            [memory.id], reason="she asked", mode="apply", confirm_token=preview.confirm_token
        )

        assert preview.proposals == ("1", "2")
        assert all(proof.holds for proof in result.proofs)
        with services_of(tally).store.database.read() as connection:
            stored = proposals.of_scope(connection, ANNA.private_scope, limit=9)
        assert [(each.record.state, each.record.content is None) for each in stored] == [
            ("withdrawn", True),
            ("withdrawn", True),
            ("pending", False),
        ]


def test_proposals_and_the_outbound_log_go_along_with_an_export(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Anna has a heron.")
        proposal = _propose(tally, "1", "Anna likes rain.")

        def call(tx: Connection) -> None:
            row = scopes.ensure(tx, ANNA.private_scope)
            sent = OutboundCall(
                id="c",
                scope=ANNA.private_scope,
                purpose="extract",
                provider="far",
                local=False,
                at=7,
            )
            outbound_calls.add(tx, sent, row.id)

        services_of(tally).store.database.write(call, name="call")
        anna.operator.export(tmp_path / "out")

    with Tally.open(tmp_path / "again", owner=ANNA) as tally:
        tally.bind().operator.import_from(tmp_path / "out")
        with services_of(tally).store.database.read() as connection:
            stored = proposals.find(connection, "1")
            assert stored is not None
            assert stored.record == proposal
        calls = tally.bind().operator.outbound_calls()
        assert [(each.id, each.provider) for each in calls] == [("c", "far")]
