"""The floor of relevance: what has nothing to do with a request does not fill its budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick import Actor, CompileConfig, ContextItem, NewMemory, SourceRef, Tally
from tallystick.compiler.outlines import outline
from tallystick.records import CompiledContext, ItemKind
from tallystick.tally import BoundTally

REQUEST = "Why does the invoice total of a customer come out without sales tax?"
RELEVANT = (
    "def invoice_total(customer, lines):\n"
    '    """The total of an invoice, sales tax of the customer\'s country included."""\n'
    "    return sum(line.amount for line in lines)\n"
)
UNRELATED_TEXTS = [
    f"# {title}\n{text}"
    for title, text in (
        ("sourdough", "Feed the starter at noon and let the dough rest under a cloth overnight."),
        ("tides", "Spring tides follow the new moon; the harbour wall is wet by four o'clock."),
        ("choir", "Altos stand on the left, and the second verse is sung without the organ."),
        ("orchids", "Water once a week from below, never in direct light, and repot in March."),
        ("glaciers", "The ice retreated forty metres since the last survey of the valley."),
        ("chess", "After the queen is pinned, White gives up the exchange to reach the ending."),
        ("bees", "The hive wintered well; there is brood on three frames and honey on two."),
        ("kites", "A longer tail steadies a small kite; a wider spar lifts it in weak wind."),
        ("pottery", "Cones eight and nine are fired slowly, or the glaze crawls at the rim."),
        ("owls", "Pellets under the barn beam held the bones of voles and one shrew."),
        ("sailing", "Reef early; the boat points higher with a flat main and an easy jib."),
        ("fossils", "Ammonites lie in the third layer above the beach, beneath the blue clay."),
        ("opera", "The tenor fell ill, and the second act was played behind the curtain."),
        ("cheese", "Turn the wheels each morning and brush the rind with brine on Fridays."),
        ("trains", "The night sleeper leaves from platform nine and stops twice before Basel."),
        ("clouds", "Mackerel sky in the evening promised rain, and rain it was by breakfast."),
        ("marathon", "Run the long loop slowly, eat before thirst, and sleep the day after."),
        ("violins", "The bridge leans towards the tailpiece; the soundpost stands behind it."),
        ("desert", "Camels drink a hundred litres in ten minutes and then walk for a week."),
        ("knitting", "Cast on eighty stitches and rib two by two until the cuff is long enough."),
    )
]


@pytest.fixture
def me(tmp_path: Path) -> Iterator[BoundTally]:
    with Tally.open(tmp_path / "tally") as tally:
        yield tally.bind(Actor(user="ana"))


def files(kind: ItemKind = "file", *, unrelated: int = 20) -> list[ContextItem]:
    texts = [RELEVANT, *UNRELATED_TEXTS[:unrelated]]
    return [
        ContextItem(
            id=f"file:{number:02}",
            kind=kind,
            content=text,
            source_ref=SourceRef(source_type="file", uri=f"{number}.txt"),
        )
        for number, text in enumerate(texts)
    ]


def chosen(compiled: CompiledContext) -> set[str]:
    return {item.id for item in compiled.selected_items}


@pytest.mark.parametrize("kind", ["file", "retrieval_doc", "artifact", "memory", "other"])
def test_twenty_unrelated_texts_beside_a_relevant_one_are_out_although_they_would_fit(
    me: BoundTally, kind: ItemKind
) -> None:
    compiled = me.compile(files(kind), budget=20_000, query=REQUEST)

    out = [d.item_id for d in compiled.decisions if d.reason_code == "below_relevance"]
    assert "file:00" in chosen(compiled)
    assert len(out) >= 18
    assert chosen(compiled).isdisjoint(out)
    assert {(d.decision, d.pass_name) for d in compiled.decisions if d.item_id in out} == {
        ("exclude", "scoring")
    }


def test_a_caller_sets_the_floor_or_does_without(me: BoundTally) -> None:
    free = me.compile(
        files(), budget=20_000, query=REQUEST, config=CompileConfig(relevance_floor=0)
    )
    strict = me.compile(
        files(), budget=20_000, query=REQUEST, config=CompileConfig(relevance_floor=1_000_000)
    )

    assert len(free.selected_items) == 21
    assert chosen(strict) == {"file:00"}


def test_a_file_that_a_relevant_one_needs_is_in_whatever_it_says(me: BoundTally) -> None:
    relevant, other, *rest = files()
    needing = relevant.model_copy(update={"dependencies": (other.id,)})

    compiled = me.compile([needing, other, *rest], budget=20_000, query=REQUEST)

    assert compiled.decision(other.id).reason_code == "dependency_of_included"


def test_what_is_required_or_holds_whatever_is_asked_is_never_below_the_floor(
    me: BoundTally,
) -> None:
    texts = iter(UNRELATED_TEXTS)
    blocking = ContextItem(
        id="blocking",
        kind="tool_result",
        content=next(texts),
        tags=frozenset({"blocking"}),
        tool_call_id="c",
    )
    call = ContextItem(id="call", kind="assistant_msg", content="", tool_call_ids=("c",))
    protected = [
        ContextItem(id="system", kind="system", content=next(texts)),
        ContextItem(id="policy", kind="policy", content=next(texts)),
        ContextItem(id="hard", kind="constraint", content=next(texts), tags=frozenset({"hard"})),
        ContextItem(id="soft", kind="constraint", content=next(texts)),
        ContextItem(id="task", kind="task", content=next(texts)),
        ContextItem(id="pin", kind="file", content=next(texts), tags=frozenset({"pinned"})),
        ContextItem(id="diff", kind="code_diff", content=next(texts)),
        ContextItem(id="edited", kind="file", content=next(texts), tags=frozenset({"changed"})),
        ContextItem(id="latest", kind="user_msg", content=REQUEST),
        call,
        blocking,
    ]
    me.remember(next(texts), kind="preference")
    [stored] = me.memories(kinds=("preference",))

    compiled = me.compile([*files(), *protected, stored], budget=20_000)

    assert {item.id for item in protected} | {stored.id} <= chosen(compiled)


def test_a_request_that_says_next_to_nothing_calls_no_file_unrelated(me: BoundTally) -> None:
    for request in ("Go on.", "yes please", "weiter", "再试一次"):
        compiled = me.compile(files(), budget=20_000, query=request)
        assert len(compiled.selected_items) == 21, request


def test_a_request_that_leans_on_the_talk_before_it_calls_no_file_unrelated(
    me: BoundTally,
) -> None:
    talk = [
        ContextItem(id="1", kind="user_msg", content="Mend the second one of the list."),
        ContextItem(id="2", kind="assistant_msg", content="Done."),
        ContextItem(id="3", kind="user_msg", content="Now repeat exactly that, then report back."),
    ]

    compiled = me.compile([*files(), *talk], budget=20_000)
    without_talk = me.compile(files(), budget=20_000, query=talk[-1].content)

    assert len(compiled.selected_items) == 24
    assert len(without_talk.selected_items) < 5


def test_a_request_in_another_language_than_the_files_calls_none_of_them_unrelated(
    me: BoundTally,
) -> None:
    for request in (
        "为什么客户的发票总额没有包括销售税？",
        "Miért hiányzik az adó a végösszegből minden ügyfélnél?",
    ):
        compiled = me.compile(files(), budget=20_000, query=request)
        assert "file:00" in chosen(compiled), request


def test_an_answer_that_recall_found_is_in_although_it_has_no_word_of_the_request(
    me: BoundTally,
) -> None:
    me.remember_many(
        NewMemory(content=text, speaker=who, kind="turn", conversation="monday")
        for who, text in [
            ("Mia", "Which instrument do you practise?"),
            ("Leo", "The cello, every evening."),
            ("Mia", "Lovely! I only have time on Sundays."),
        ]
    )
    query = "Which instrument does Leo practise?"
    answer = next(hit for hit in me.recall(query) if "cello" in hit.content)

    compiled = me.compile([*files(), answer], budget=20_000, query=query)

    assert answer.memory.id in chosen(compiled)


def test_the_caption_of_an_image_is_in_a_compiled_block(me: BoundTally) -> None:
    me.remember(
        "Look at this!", kind="turn", speaker="Leo", attributes={"caption": "a cello on a chair"}
    )
    [turn] = me.memories(kinds=("turn",))

    compiled = me.compile([turn], budget=1_000, query="Which instrument stands on the chair?")

    assert "Look at this! [image: a cello on a chair]" in outline(compiled).context
