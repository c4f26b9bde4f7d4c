"""Documents of memory: planned, collected, drafted, verified, kept, stale, and gone with their
sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.core.graph.naming import named

from tallystick.errors import Denied, ExtractionError, InvalidInput, NotFound, StateConflict
from tallystick.records import Actor, ProviderDeclaration
from tallystick.records.synthesis import DraftRequest, SynthesisRun
from tallystick.settings import Settings
from tallystick.tally import BoundTally, Tally
from tallystick.testing import StepClock
from tallystick_synthesis import Synthesis

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")
AGENT = Actor(user="alice", agent="writer")
BOB = Actor(user="bob")
ROOT = Actor(user="root", role="operator")
LEDGER = "The ledger moved from Postgres to SQLite on 4 May, because restores took 40 minutes."


class Writer:
    """A drafter that answers by a function of its pack, and keeps the packs it got."""

    def __init__(self, answer: Callable[[DraftRequest], str], *, local: bool = True) -> None:
        self._answer, self._local = answer, local
        self.packs: list[DraftRequest] = []

    @property
    def declaration(self) -> ProviderDeclaration:
        return ProviderDeclaration(name="writer", model="writer-1", local=self._local)

    def draft(self, request: DraftRequest) -> str:
        self.packs.append(request)
        return self._answer(request)


def filled(bound: BoundTally) -> dict[str, str]:
    return {
        "ledger": bound.remember(LEDGER, kind="decision").id,
        "backups": bound.remember("Backups are kept for 30 days in Porto.", kind="constraint").id,
        "gateway": bound.remember("The gateway component answers HTTP requests.", kind="fact").id,
    }


def drafted(bound: BoundTally, query: str = "the ledger and the gateway") -> SynthesisRun:
    synthesis = Synthesis(bound)
    run = synthesis.plan(query, format="markdown")
    synthesis.sections(run.id)
    synthesis.draft(run.id)
    return synthesis.verify(run.id)


def kept(bound: BoundTally) -> SynthesisRun:
    synthesis, run = Synthesis(bound), drafted(bound)
    preview = synthesis.remember(run.id)
    synthesis.remember(run.id, mode="apply", confirm_token=preview.confirm_token)
    return synthesis.run(run.id, format="markdown")


def outline(*titles: str) -> list[dict[str, str]]:
    return [{"title": title, "query": title} for title in titles]


def test_every_sentence_of_a_document_quotes_a_source_that_its_section_names(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        ids = filled(bound)
        run = drafted(bound)

        assert run.verification is not None
        assert (run.verification.verdict, run.verification.unsupported) == ("passed_with_gaps", ())
        assert run.verification.quoted == run.verification.sentences > 2
        decisions = next(each for each in run.sections if each.path == ("Decisions",))
        assert [item.memory_id for item in decisions.items] == [ids["ledger"]]
        assert decisions.source_ids
        assert run.markdown is not None
        assert f"“{LEDGER}” [1]" in run.markdown
        assert all(section.source_ids or section.gap for section in run.sections)
        names = {each.agent_name for each in bound.recordings.runs()}
        assert names == {"tallystick-synthesis"}


def test_the_same_tally_and_request_give_the_same_digests(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        filled(bound)
        one, other = drafted(bound), drafted(bound)

        assert one.plan_digest == other.plan_digest
        assert one.draft_digest == other.draft_digest
        assert one.markdown == other.markdown
        assert one.verification == other.verification


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to go on"),
        ({"query": "x", "output_type": "poem"}, "release_notes"),
        ({"query": "x", "output_type": "custom"}, "outline"),
        ({"outline": [{"title": str(n)} for n in range(25)]}, "24 sections"),
        ({"outline": [{"title": " "}]}, "blank"),
        ({"outline": [{"title": "a\0"}]}, "NUL"),
        ({"outline": [{"title": "a", "kinds": ["decisions"]}]}, "no kind 'decisions'"),
        (
            {
                "outline": [
                    {"title": "a", "sections": [{"title": "b", "sections": [{"title": "c"}]}]}
                ],
                "audience": "x" * 201,
            },
            "200",
        ),
    ],
)
def test_a_request_that_nothing_could_answer_is_refused(
    open_sqlite: OpenTally, given: dict[str, object], said: str
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match=said):
        Synthesis(tally.bind(ALICE)).plan(**given)  # type: ignore[arg-type]


def test_steps_have_their_order_and_runs_their_owner(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(Actor(user="alice", projects=frozenset({"apollo"})), "project:apollo")
        other = tally.bind(Actor(user="bob", projects=frozenset({"apollo"})), "project:apollo")
        filled(bound)
        synthesis = Synthesis(bound)
        run = synthesis.plan("the ledger")

        with pytest.raises(StateConflict, match="not collected"):
            synthesis.draft(run.id)
        with pytest.raises(StateConflict, match="no draft"):
            synthesis.verify(run.id)
        with pytest.raises(StateConflict, match="not verified"):
            synthesis.remember(run.id)
        with pytest.raises(StateConflict, match="somebody else"):
            Synthesis(other).sections(run.id)
        assert Synthesis(other).run(run.id).id == run.id
        with pytest.raises(NotFound) as hidden:
            Synthesis(tally.bind(BOB)).run(run.id)
        with pytest.raises(NotFound) as absent:
            Synthesis(tally.bind(BOB)).run("0" + run.id[1:])
        assert str(hidden.value) == str(absent.value).replace("0" + run.id[1:], run.id)
        synthesis.sections(run.id)
        with pytest.raises(StateConflict, match="digest"):
            synthesis.draft(run.id, if_digest="sha256:other")
        with pytest.raises(Denied):
            Synthesis(bound).plan("x", scopes=["private:bob"])
        assert [each.id for each in synthesis.runs()] == [run.id]


def test_what_changed_since_it_was_collected_is_not_quoted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        ids, synthesis = filled(bound), Synthesis(bound)
        run = synthesis.plan("the ledger")
        synthesis.sections(run.id)
        bound.modify(ids["ledger"], content="The ledger stays.", reason="it stays")

        with pytest.raises(StateConflict, match="has changed"):
            synthesis.draft(run.id)
        assert synthesis.run(run.id).stale_sections
        refreshed = synthesis.refresh(run.id)
        assert refreshed.verification is not None
        assert refreshed.verification.verdict == "passed_with_gaps"


def test_hidden_and_forgotten_give_nothing_and_redacted_metadata_alone(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        filled(bound)
        hidden = bound.remember("The ledger has a secret heron.", kind="decision")
        redacted = bound.remember("The ledger has a pelican.", kind="decision")
        for memory, kind in ((hidden, "hide"), (redacted, "redact")):
            token = bound.corrections.make(memory.id, kind, reason="x").confirm_token  # type: ignore[arg-type]
            bound.corrections.make(
                memory.id,
                kind,  # type: ignore[arg-type]
                reason="x",
                mode="apply",
                confirm_token=token,
            )
        run = drafted(bound)

        assert "heron" not in run.dumps()
        assert "pelican" not in run.dumps()
        decisions = next(each for each in run.sections if each.path == ("Decisions",))
        assert decisions.hidden == 1
        assert decisions.redacted == sum(item.holds == "redacted" for item in decisions.items)
        assert all(not item.text for item in decisions.items if item.holds == "redacted")


def test_contradicting_sources_are_both_named(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        one = bound.remember("Releases are cut on Mondays by the bot.", kind="decision").id
        two = bound.remember(
            "Releases are cut on Fridays by hand.", kind="decision", contradicts=[one]
        ).id
        run = drafted(bound, "releases")

        assert run.verification is not None
        assert run.verification.contradictions == ((min(one, two), max(one, two)),)
        assert run.markdown is not None
        assert "contradict one another" in run.markdown


def test_a_superseded_source_is_named_with_its_replacement(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        old = bound.remember("Deploys of the ledger run from Jenkins.", kind="fact").id
        new = bound.remember("Deploys of the ledger run from Buildkite.", kind="fact").id
        token = bound.corrections.make(old, "supersede", by=new, reason="moved").confirm_token
        bound.corrections.make(
            old, "supersede", by=new, reason="moved", mode="apply", confirm_token=token
        )
        synthesis = Synthesis(bound)
        run = synthesis.plan(outline=outline("Deploys of the ledger"), output_type="custom")
        [section] = synthesis.sections(run.id).sections

        by_id = {item.memory_id: item for item in section.items}
        assert new in by_id
        assert old not in by_id or by_id[old].replaced_by == new


def test_an_artifact_is_previewed_then_kept_with_the_sources_of_each_section(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        ids, run = filled(bound), kept(bound)
        assert run.artifact_id is not None
        artifact = bound.get(run.artifact_id)

        assert artifact.kind == "artifact"
        assert LEDGER in artifact.content
        cited = {each for s in artifact.attributes["sections"] for each in s["memories"]}  # type: ignore[union-attr, call-overload, index]
        assert cited == set(ids.values())
        assert artifact.attributes["verdict"] == "passed_with_gaps"
        synthesis = Synthesis(bound)
        with pytest.raises(Denied, match="confirm_token_required"):
            synthesis.remember(drafted(bound).id, mode="apply")
        with pytest.raises(StateConflict, match="confirm_token_mismatch"):
            synthesis.remember(drafted(bound).id, mode="apply", confirm_token="1.x")


def test_a_correction_previews_and_makes_stale_what_cites_it_and_refresh_makes_it_anew(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        ids, run = filled(bound), kept(bound)
        other = bound.remember("The heron stands in the reeds.", kind="fact").id
        assert run.artifact_id is not None
        assert bound.corrections.make(other, "hide", reason="x").synthesis == ()
        preview = bound.corrections.make(ids["ledger"], "mark_wrong", reason="it stays")
        [cited] = preview.synthesis
        assert (cited.artifact_id, cited.is_stale) == (run.artifact_id, False)
        assert "Decisions" in cited.sections

        bound.corrections.make(
            ids["ledger"],
            "mark_wrong",
            reason="it stays",
            mode="apply",
            confirm_token=preview.confirm_token,
        )
        hits = {hit.memory.id: hit for hit in bound.recall("backups in Porto gateway component")}
        assert not hits[run.artifact_id].fresh
        assert "stale: what it cites has changed" in bound.pack("architecture overview").text
        synthesis = Synthesis(bound)
        stale = synthesis.run(run.id).stale_sections
        before = {section.number: section for section in run.draft}
        refreshed = synthesis.refresh(run.id)
        assert stale
        for section in refreshed.draft:
            if section.number not in stale:
                assert section == before[section.number]
        assert LEDGER not in refreshed.dumps()
        again = synthesis.remember(run.id)
        assert again.replaces == run.artifact_id
        renewed = synthesis.remember(run.id, mode="apply", confirm_token=again.confirm_token)
        assert renewed.memory_id not in (None, run.artifact_id)
        assert bound.get(renewed.memory_id or "").attributes["stale"] == []


def test_an_erasure_takes_what_quotes_it_along(open_tally: OpenTally) -> None:
    with open_tally(owner=ROOT) as tally:
        bound = tally.bind(ALICE)
        ids, run = filled(bound), kept(bound)
        operator = tally.bind(ROOT, "private:alice")
        token = operator.operator.erase([ids["ledger"]], reason="asked for").confirm_token
        erased = operator.operator.erase(
            [ids["ledger"]], reason="asked for", mode="apply", confirm_token=token
        )

        assert all(proof.holds for proof in erased.proofs)
        gone = Synthesis(bound).run(run.id)
        assert (gone.stage, gone.sections, gone.draft) == ("erased", (), ())
        with pytest.raises(StateConflict, match="erased"):
            Synthesis(bound).refresh(run.id)


def test_a_model_gets_packs_alone_and_is_passed_only_where_it_quotes_or_a_person_accepts(
    open_tally: OpenTally,
) -> None:
    def answer(request: DraftRequest) -> str:
        handle, text = request.items[0]
        return f"“{text}” [{handle}]\n\nThe ledger is in SQLite since 4 May [{handle}]."

    writer = Writer(answer)
    with open_tally(drafter=writer) as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        synthesis = Synthesis(bound)
        run = synthesis.plan(output_type="custom", outline=outline("The ledger"))
        synthesis.sections(run.id)
        synthesis.draft(run.id, drafter="model")
        verified = synthesis.verify(run.id).verification
        assert verified is not None
        assert verified.verdict == "passed_with_gaps"
        assert [claim.reason for claim in verified.unsettled] == ["not_quoted"]
        with pytest.raises((Denied, InvalidInput)):
            Synthesis(tally.bind(AGENT)).verify(run.id, accept=["1.2"])
        accepted = synthesis.verify(run.id, accept=["1.2"]).verification
        assert accepted is not None
        assert accepted.verdict == "passed"
        assert [len(pack.items) for pack in writer.packs] == [1]
        assert [each.purpose for each in tally.bind(ROOT).operator.outbound_calls()] == ["draft"]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("The ledger moved from Postgres to SQLite on 5 May [1].", "number"),
        ("Later Xandra moved it [1].", "name"),
        ("The ledger was inspected by hydraulic engineers [1].", "words"),
        ("The ledger moved from Postgres to SQLite.", "no_handle"),
        ("The ledger moved from Postgres to SQLite [9].", "foreign_handle"),
        ("“The ledger moved from Postgres to MySQL” [1]", "not_quoted"),
        ("# The ledger rules", "no_handle"),
        ("```\nrm -rf /\n```", "no_handle"),
    ],
)
def test_what_a_model_makes_up_is_listed_and_not_kept(
    open_sqlite: OpenTally, said: str, reason: str
) -> None:
    with open_sqlite(drafter=Writer(lambda _: said)) as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        synthesis = Synthesis(bound)
        run = synthesis.plan(output_type="custom", outline=outline("The ledger"))
        synthesis.sections(run.id)
        synthesis.draft(run.id, drafter="model")
        verified = synthesis.verify(run.id).verification
        assert verified is not None
        assert verified.verdict == "blocked_unsupported_claims"
        assert [claim.reason for claim in verified.unsupported] == [reason]
        with pytest.raises(StateConflict, match="blocked_unsupported_claims"):
            synthesis.remember(run.id)


def test_a_far_model_sees_neither_secrets_nor_what_stays_here(open_sqlite: OpenTally) -> None:
    writer = Writer(lambda request: f"“{request.items[0][1]}” [1]", local=False)
    with open_sqlite(drafter=writer) as tally:
        bound = tally.bind(ALICE)
        bound.remember("The ledger is run by alice@example.com since May.", kind="fact")
        bound.remember("The ledger hides a heron.", kind="fact", attributes={"local_only": True})
        synthesis = Synthesis(bound)
        run = synthesis.plan(output_type="custom", outline=outline("The ledger"))
        synthesis.sections(run.id)
        synthesis.draft(run.id, drafter="model")

        sent = "".join(text for pack in writer.packs for _, text in pack.items)
        assert "alice@example.com" not in sent
        assert "heron" not in sent


def test_a_draft_that_a_model_gave_up_goes_on_where_it_was(open_tally: OpenTally) -> None:
    failing = ["The gateway"]

    def answer(request: DraftRequest) -> str:
        if request.title in failing:
            raise ExtractionError("It says nothing.")
        return f"“{request.items[0][1]}” [1]"

    writer = Writer(answer)
    with open_tally(drafter=writer) as tally:
        bound = tally.bind(ALICE)
        filled(bound)
        synthesis = Synthesis(bound)
        run = synthesis.plan(
            output_type="custom", outline=outline("The ledger", "The gateway", "Backups")
        )
        synthesis.sections(run.id)
        with pytest.raises(ExtractionError):
            synthesis.draft(run.id, drafter="model")
        begun = synthesis.run(run.id)
        assert (begun.stage, [each.number for each in begun.draft]) == ("collected", [1])
        with pytest.raises(StateConflict, match="no draft"):
            synthesis.verify(run.id)

        failing.clear()
        done = synthesis.draft(run.id, drafter="model")
        assert (done.stage, [each.number for each in done.draft]) == ("drafted", [1, 2, 3])
        asked = [pack.title for pack in writer.packs]
        assert asked == ["The ledger", "The gateway", "The gateway", "Backups"]
        synthesis.draft(run.id, drafter="model")
        assert len(writer.packs) == 7  # asked for again, it is drafted anew

        verified = synthesis.verify(run.id)
        failing.append("The gateway")
        with pytest.raises(ExtractionError):
            synthesis.draft(run.id, drafter="model")
        kept = synthesis.run(run.id)
        assert (kept.stage, kept.draft) == ("verified", verified.draft)


def test_what_no_model_drafts_is_refused_when_it_is_asked_for(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        synthesis = Synthesis(tally.bind(ALICE))
        filled(tally.bind(ALICE))
        run = synthesis.plan("the ledger")
        synthesis.sections(run.id)
        with pytest.raises(InvalidInput, match="No model drafts here"):
            synthesis.draft(run.id, drafter="model", mode="async")
        assert synthesis.run(run.id).job_id is None


def test_a_step_can_be_left_to_a_job(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        filled(bound)
        synthesis = Synthesis(bound)
        run = synthesis.plan("the ledger")
        for step in (synthesis.sections, synthesis.draft, synthesis.verify):
            assert step(run.id, mode="async").job_id is not None
            tally.drain()
        done = synthesis.run(run.id, format="markdown")
        assert done.stage == "verified"
        assert done.markdown is not None


def test_what_is_too_old_is_a_gap_blocks_or_is_allowed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision", occurred_at="2001-01-01T00:00:00Z")
        verdicts = {}
        for stale in ("gap", "block", "allow"):
            synthesis = Synthesis(bound)
            run = synthesis.plan(
                output_type="custom",
                outline=outline("The ledger"),
                max_age=3_600,
                stale=stale,
            )
            synthesis.sections(run.id)
            synthesis.draft(run.id)
            verified = synthesis.verify(run.id).verification
            assert verified is not None
            verdicts[stale] = verified.verdict
        assert verdicts == {
            "gap": "blocked_missing_sources",
            "block": "blocked_stale_sources",
            "allow": "passed",
        }


def test_a_document_of_some_sources_quotes_nothing_else(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        ids = filled(bound)
        source = bound.get(ids["gateway"]).sources[0].source_id
        synthesis = Synthesis(bound)
        run = synthesis.plan(source_ids=[source])
        quoted = [i.memory_id for s in synthesis.sections(run.id).sections for i in s.items]
        assert set(quoted) == {ids["gateway"]}


def test_the_parts_of_an_overview_are_told_by_the_communities_of_the_graph(
    open_tally: OpenTally,
) -> None:
    crews = {
        "boats": (
            "Anna Schmidt sails the Seeadler from Hamburg.",
            "The Seeadler left Hamburg with Anna Schmidt at dawn.",
        ),
        "music": (
            "Bob Miller plays cello with Clara Jones at Studio Nine.",
            "We heard Bob Miller and Clara Jones at Studio Nine.",
        ),
    }
    with open_tally(settings=Settings(graph=True)) as tally:
        bound = tally.bind(ALICE)
        for texts in crews.values():
            bound.remember_many(list(map(named, texts)))
        tally.drain()
        synthesis = Synthesis(bound)
        run = synthesis.plan("zebra")
        [parts] = [each for each in run.plan if each.path == ("Parts",)]
        assert parts.communities
        assert parts.evidence > 0
        sections = {each.path[-1]: each for each in synthesis.sections(run.id).sections}
        quoted = {item.text for item in sections["Parts"].items}
        assert [crew for crew, texts in crews.items() if not quoted & set(texts)] == []

        hidden = [each for each in bound.memories() if each.content in crews["music"]]
        for each in hidden:
            bound.forget(each.id, reason="wrong")
        again = Synthesis(bound).plan("zebra")
        left = {item.text for each in synthesis.sections(again.id).sections for item in each.items}
        assert left & set(crews["boats"])
        assert not left & set(crews["music"])


def test_without_the_graph_no_section_waits_for_communities(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        filled(bound)
        run = Synthesis(bound).plan("zebra")
        [parts] = [each for each in run.plan if each.path == ("Parts",)]
        assert (parts.communities, parts.evidence, parts.gap) == (True, 1, None)


def custom(bound: BoundTally, **given: Any) -> SynthesisRun:
    synthesis = Synthesis(bound)
    run = synthesis.plan(output_type="custom", outline=outline("The ledger"), **given)
    synthesis.sections(run.id)
    synthesis.draft(run.id)
    return synthesis.verify(run.id)


def keep(bound: BoundTally, run: SynthesisRun) -> str:
    synthesis = Synthesis(bound)
    token = synthesis.remember(run.id).confirm_token
    artifact = synthesis.remember(run.id, mode="apply", confirm_token=token).memory_id
    assert artifact is not None
    return artifact


def test_a_source_that_grows_too_old_after_it_was_collected_blocks_what_is_kept(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        run = custom(bound, max_age=3_600, stale="block")
        assert run.verification is not None
        assert run.verification.verdict == "passed"

        later = StepClock(clock.now() + 7_200_000_000)
    with open_tally(clock=later) as tally:
        bound = tally.bind(ALICE)
        with pytest.raises(StateConflict, match="blocked_stale_sources"):
            Synthesis(bound).remember(run.id)


def test_a_draft_left_to_a_job_holds_the_digest_that_was_asked_for(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        synthesis = Synthesis(bound)
        run = synthesis.plan(output_type="custom", outline=outline("The ledger"))
        synthesis.sections(run.id)

        other = synthesis.draft(run.id, if_digest="sha256:other", mode="async")
        tally.drain()
        assert (other.stage, synthesis.run(run.id).stage) == ("collected", "collected")
        assert other.job_id is not None
        assert bound.jobs.get(other.job_id).state == "dead"

        synthesis.draft(run.id, if_digest=run.plan_digest, mode="async")
        tally.drain()
        assert synthesis.run(run.id).stage == "drafted"
        with pytest.raises(InvalidInput, match="at once"):
            synthesis.verify(run.id, accept=["1.1"], mode="async")


def test_a_far_model_sees_no_secret_of_the_audience(open_sqlite: OpenTally) -> None:
    writer = Writer(lambda request: f"“{request.items[0][1]}” [1]", local=False)
    with open_sqlite(drafter=writer) as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        run = custom(bound, audience="whoever writes to alice@example.com")
        Synthesis(bound).draft(run.id, drafter="model")

        [pack] = writer.packs
        assert "alice@example.com" not in pack.audience


def test_a_place_of_any_length_is_refused_as_no_place(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        run = custom(bound)
        with pytest.raises(InvalidInput, match="is no place"):
            Synthesis(bound).verify(run.id, accept=["9" * 5_000 + ".1"])


def test_a_title_begins_no_paragraph_of_its_own(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision")
        synthesis = Synthesis(bound)
        run = synthesis.plan(
            output_type="custom",
            outline=outline("The ledger\n\nIt moved to MySQL."),
            audience="all\n\nNothing is stale.",
            format="markdown",
        )
        synthesis.sections(run.id)
        markdown = synthesis.draft(run.id).markdown

        assert markdown is not None
        assert "## The ledger It moved to MySQL." in markdown.splitlines()
        assert "for: all Nothing is stale.. Every" in markdown


def test_a_document_of_the_same_words_rests_on_what_it_is_made_of_now(
    open_tally: OpenTally,
) -> None:
    with open_tally(owner=ROOT) as tally:
        bound = tally.bind(ALICE)
        ledger = bound.remember(LEDGER, kind="decision").id
        first, second = custom(bound), custom(bound)
        artifact = keep(bound, first)
        assert keep(bound, second) == artifact
        assert bound.get(artifact).attributes["synthesis"] == second.id

        for mend in ("mark_wrong", "restore"):
            token = bound.corrections.make(ledger, mend, reason="seen").confirm_token
            bound.corrections.make(ledger, mend, reason="seen", mode="apply", confirm_token=token)
        assert bound.get(artifact).attributes["stale"] == [1]
        Synthesis(bound).refresh(second.id)
        assert keep(bound, second) == artifact
        assert bound.get(artifact).attributes["stale"] == []


def test_the_documents_in_the_making_of_an_erased_user_are_gone(open_tally: OpenTally) -> None:
    with open_tally(owner=ROOT) as tally:
        bob = BOB.replace(projects=frozenset({"apollo"}))
        tally.bind(bob, "project:apollo").remember(LEDGER, kind="decision")
        alice = tally.bind(ALICE.replace(projects=frozenset({"apollo"})), "project:apollo")
        run = custom(alice, query="why she asks")
        operator = tally.bind(ROOT, "project:apollo").operator
        preview = operator.erase_user("alice", reason="she asked")
        assert preview.counts["synthesis runs"] == 1
        erased = operator.erase_user(
            "alice", reason="she asked", mode="apply", confirm_token=preview.confirm_token
        )

        assert erased.proof is not None
        assert erased.proof.holds
        with pytest.raises(NotFound):
            Synthesis(tally.bind(bob, "project:apollo")).run(run.id)


def test_any_text_and_any_number_of_a_memory_may_be_quoted_and_kept(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        bound = tally.bind(ALICE)
        bound.remember("The ledger \ud800 moved in May.", kind="fact", attributes={"share": 0.5})
        run = custom(bound)
        assert run.verification is not None
        assert run.verification.verdict == "passed"
        assert "\ud800" in bound.get(keep(bound, run)).content


def test_a_source_whose_validity_has_ended_is_stale(open_tally: OpenTally) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        bound = tally.bind(ALICE)
        bound.remember(LEDGER, kind="decision", valid_until=clock.now() + 3_600_000_000)
        run = custom(bound)
    with open_tally(clock=StepClock(clock.now() + 7_200_000_000)) as tally:
        synthesis = Synthesis(tally.bind(ALICE))
        assert synthesis.run(run.id).stale_sections == (1,)
        verification = synthesis.verify(run.id).verification
        assert verification is not None
        assert verification.verdict == "blocked_stale_sources"
        [section] = synthesis.refresh(run.id).sections
        assert (section.gap, section.items) == ("no_evidence", ())
