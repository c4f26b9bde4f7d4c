"""Arguments are checked at the door: what does not fit is refused by our errors, naming it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tallystick import Actor, ContextItem, NewMemory, SourceRef, Tally
from tallystick.errors import InvalidInput, InvalidRecord, NotFound, TallystickError
from tallystick.operations import OPERATIONS
from tallystick.records._base import hints_of
from tallystick.tally import (
    BoundApprovals,
    BoundRecordings,
    BoundSpaces,
    BoundTally,
    Corrections,
    Jobs,
    OpenOptions,
    Operator,
    Reviews,
)
from tallystick_graph import Graph
from tallystick_learning import Learning

CHECKED = (
    Tally,
    BoundTally,
    Operator,
    BoundApprovals,
    BoundRecordings,
    BoundSpaces,
    Corrections,
    Jobs,
    Reviews,
    Learning,
    Graph,
)
WRONG: tuple[Any, ...] = (
    None,
    7,
    -1,
    2.5,
    float("nan"),
    True,
    "",
    "x",
    "\ud800",
    b"x",
    object(),
    len,
    int,
    [],
    ["x"],
    [None],
    [object()],
    {},
    {"x": object()},
    {1: 2},
    {"x"},
    (1, 2),
    Actor(user="ada"),
    10**30,
)
FITTING: dict[str, Any] = {"reason": "r", "query": "heron", "content": "x", "text": "x"}
"""Values of arguments that a call needs, beside the one that is wrong."""


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoundTally]:
    folder = tmp_path_factory.mktemp("arguments") / "t"
    with Tally.open(folder, background=False) as tally:
        yield tally.bind(Actor(user="ada", role="operator"))


def opened(*args: Any, **kwargs: Any) -> Tally:
    return Tally.open(*args, **kwargs)


CASES = [
    (operation.name, argument)
    for operation in OPERATIONS.values()
    for argument in operation.arguments.model_fields
    if operation.name not in ("export", "import_from")  # they write where they are told
]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoundTally]:
    """One that anything may be done to."""
    with Tally.open(tmp_path_factory.mktemp("other") / "t", background=False) as tally:
        yield tally.bind(Actor(user="ada", role="operator"))


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=st.sampled_from(CASES), value=st.sampled_from(WRONG))
def test_no_wrong_value_gets_past_our_errors(
    other: BoundTally, case: tuple[str, str], value: Any
) -> None:
    name, argument = case
    operation = OPERATIONS[name]
    arguments = {
        field: FITTING.get(field, "x")
        for field, info in operation.arguments.model_fields.items()
        if info.is_required() and field != operation.spread
    }
    verb = operation.bind(other)
    if argument == operation.spread:
        given = {**arguments, "content": value}
    else:
        given = {**arguments, argument: value}
    with suppress(TallystickError):
        verb(**given)


@pytest.mark.parametrize("half", ["\ud800", "a\x00b", ["\ud800"], {"\ud800": 1}])
def test_half_a_character_and_nul_get_nowhere_past_our_errors(other: BoundTally, half: Any) -> None:
    for name, argument in CASES:
        operation = OPERATIONS[name]
        fields = operation.arguments.model_fields.items()
        needed = {field: FITTING.get(field, "x") for field, info in fields if info.is_required()}
        needed.pop(operation.spread or "", None)
        given = {"content" if argument == operation.spread else argument: half}
        with suppress(TallystickError):
            operation.bind(other)(**{**needed, **given})


@pytest.mark.parametrize(
    ("call", "argument", "says"),
    [
        (lambda b: b.remember("x", tags="style"), "tags", r"takes a list; write \[value\]"),
        (lambda b: b.remember_many("abc"), "items", "takes a list"),
        (lambda b: b.remember_many(NewMemory(content="x")), "items", "takes a list"),
        (lambda b: b.recall("x", kinds="note"), "kinds", "takes a list"),
        (lambda b: b.recall("x", kinds=["notes"]), "kinds", "did you mean 'note'"),
        (lambda b: b.memories(kinds=["notes"]), "kinds", "did you mean 'note'"),
        (lambda b: b.memories(states="active"), "states", "takes a list"),
        (lambda b: b.recall("x", scopes="project:apollo"), "scopes", "takes a list"),
        (lambda b: b.recall("x", limit="many"), "limit", "takes a whole number"),
        (lambda b: b.compile("x", budget=10), "items", "takes a list"),
        (lambda b: b.compile([], budget="8k"), "budget", "takes a whole number"),
        (lambda b: b.run(7), "agent_name", "takes a text"),
        (lambda b: b.run("a", retention="none"), "retention", "metadata_only"),
        (lambda b: b.run("a", metadata={"at": object()}), "metadata", "JSON"),
        (lambda b: b.tally.bind("ann"), "actor", r"write Actor\(user="),
        (lambda b: b.modify("x" * 36, reason=7), "reason", "takes a text"),
        (lambda b: opened(7), "where", "takes a text"),
        (lambda b: opened(".t", settings=7), "settings", "Settings"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_argument(
    bound: BoundTally, call: Callable[[BoundTally], Any], argument: str, says: str
) -> None:
    before = bound.memories(limit=1_000)
    with pytest.raises(InvalidInput, match=says) as refused:
        call(bound)

    assert refused.value.argument == argument
    assert f"`{argument}`" in str(refused.value)
    assert bound.memories(limit=1_000) == before


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Actor(user=""), "user"),
        (lambda: Actor(user=None), "user"),  # type: ignore[arg-type]
        (lambda: NewMemory(content=7), "content"),  # type: ignore[arg-type]
        (lambda: NewMemory(content="x", tags="style"), "tags"),
        (lambda: NewMemory(content="x", importance=101), "importance"),
        (lambda: ContextItem(id="a", kind="user", content="x"), "kind"),  # type: ignore[arg-type]
        (lambda: SourceRef(source_type="web"), "source_type"),  # type: ignore[arg-type]
    ],
)
def test_a_record_that_does_not_fit_is_refused_in_our_tree(
    make: Callable[[], Any], field: str
) -> None:
    with pytest.raises(InvalidRecord) as refused:
        make()

    assert refused.value.argument == field


def test_an_argument_that_there_is_not_is_a_mistake_in_the_program(bound: BoundTally) -> None:
    with pytest.raises(TypeError, match=r"recall\(\) got an unexpected keyword argument 'topk'"):
        bound.recall("x", topk=3)  # type: ignore[call-arg]


def test_the_id_of_a_user_may_be_a_number() -> None:
    assert Actor(user=123) == Actor(user="123")  # type: ignore[arg-type]


def test_an_id_may_be_given_by_its_beginning_or_its_end(bound: BoundTally) -> None:
    stored = bound.remember("The heron nests in March.")
    with bound.run("nest") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "x"})

    assert bound.get(stored.id[-8:]).id == stored.id
    assert bound.inspect(stored.id[-8:]).id == stored.id
    assert bound.source(stored.source_id[-8:]).id == stored.source_id
    assert bound.recordings.step(step.id[-8:]).id == step.id
    assert bound.recordings.verify(run.id[-8:]).ok
    assert bound.remember("Herons nest early.", derived_from=[stored.id[-8:]]).status == "created"
    assert bound.forget(stored.id[-8:], reason="r").id == stored.id


def test_a_part_of_an_id_that_fits_several_is_refused(bound: BoundTally) -> None:
    ids = [stored.id for stored in bound.remember_many(["one tern", "two terns"])]
    shared = ids[0][:8]
    assert ids[1].startswith(shared)
    with pytest.raises(InvalidInput, match=r"fits .* ids"):
        bound.get(shared)


def test_an_id_that_somebody_chose_is_itself_and_not_the_beginning_of_another(
    bound: BoundTally,
) -> None:
    for run_id in ("2026-11-22-2", "2026-11-22"):
        bound.run("agent", run_id=run_id).end()
    bound.working.of("2026-11").set("plan", "x")

    assert bound.recordings.run("2026-11-22").id == "2026-11-22"
    assert bound.working.of("2026-11").run_id == "2026-11"


def test_a_part_of_an_id_reaches_nothing_that_the_actor_may_not_see(bound: BoundTally) -> None:
    hers = bound.remember("The gate code is 7341.")
    bob = bound.tally.bind(Actor(user="bob"))
    for fragment in (hers.id[-8:], hers.id[:13], hers.id[-6:]):
        with pytest.raises(NotFound):
            bob.get(fragment)
        with pytest.raises(NotFound):
            bob.inspect(fragment)


@pytest.mark.parametrize("part", CHECKED)
def test_the_annotations_of_every_verb_can_be_checked(part: type) -> None:
    for name, member in inspect.getmembers(part, inspect.isroutine):
        if not name.startswith("_"):
            hints_of(member, extras=True)


def test_the_verbs_of_a_view_are_not_sought_on_the_tally(tmp_path: Path) -> None:
    with (
        Tally.open(tmp_path / "t") as tally,
        pytest.raises(AttributeError, match=r"tally\.bind\(\)\.remember"),
    ):
        tally.remember("x")  # type: ignore[attr-defined]


def test_a_tally_in_memory_is_a_folder_that_ends_with_it() -> None:
    with Tally.open(":memory:") as tally:
        folder = Path(tally.location)
        tally.bind().remember("The heron nests in March.")
        assert folder.is_dir()
        assert len(tally.bind().recall("heron")) == 1

    assert not folder.exists()
    assert not Path(":memory:").exists()


def test_a_hit_says_in_words_why_it_was_found(bound: BoundTally) -> None:
    bound.remember("The kiln runs at 1,240 degrees.")
    [hit, *_] = bound.recall("how hot does the kiln run?")

    assert (hit.content, hit.access_reason) == (hit.memory.content, "allowed_private")
    assert "shares words with the question" in hit.why


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda run, step: run.step("thinking"), "kind"),
        (lambda run, step: run.step("other", name=7), "name"),
        (lambda run, step: run.step("other", metadata={"at": object()}), "metadata"),
        (lambda run, step: run.step("other", metadata="x"), "metadata"),
        (lambda run, step: step.record("thought", "x"), "kind"),
        (lambda run, step: step.record("note", "x", summary="x"), "summary"),
        (lambda run, step: step.end("finished"), "status"),
        (lambda run, step: step.end(["completed"]), "status"),
        (lambda run, step: run.end("finished"), "status"),
        (lambda run, step: run.step("other").end(metadata={1: {2}}), "metadata"),
    ],
)
def test_what_no_receipt_could_be_made_of_is_refused_when_it_is_recorded(
    bound: BoundTally, call: Callable[[Any, Any], Any], argument: str
) -> None:
    with bound.run("agent") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "x"})
        with pytest.raises(InvalidInput) as refused:
            call(run, step)
        step.record("response", {"text": "y"})

    assert refused.value.argument == argument
    assert bound.recordings.verify(run.id).ok
    kinds = [entry.kind for entry in bound.recordings.entries(step.id)]
    assert kinds == ["request", "response"]


def test_a_notebook_shows_a_line_of_each_thing_and_a_table_of_many(bound: BoundTally) -> None:
    bound.remember("<b>Herons</b> eat fish. " + "They wait. " * 40)
    recalled = bound.recall("what do herons eat?", limit=1)
    compiled = bound.compile([ContextItem(id="<i>", kind="user_msg", content="x")], budget=500)
    run = bound.run("agent")
    step = run.step("model_call")
    run.end()
    things = [*recalled, recalled[0].memory, compiled, run, step, Actor(user="ada")]

    assert all(len(repr(thing)) < 220 for thing in things)
    assert repr(things[-1]) == "Actor(user='ada')"
    assert "<b>" not in str(recalled._repr_html_())
    assert "&lt;b&gt;Herons" in str(recalled._repr_html_())
    assert "&lt;i&gt;" in str(compiled._repr_html_())


def test_a_sequence_of_ones_own_kind_is_a_sequence(bound: BoundTally) -> None:
    class Sources(Sequence[str]):
        def __init__(self, first: str, *others: str) -> None:
            self.names = (first, *others)

        def __len__(self) -> int:
            return len(self.names)

        def __getitem__(self, index: Any) -> Any:
            return self.names[index]

    assert bound.remember("The tern dives.", tags=Sources("birds")).status == "created"


def test_the_options_of_opening_are_spelled_out_and_checked(tmp_path: Path) -> None:
    parameters = inspect.signature(Tally.open).parameters
    assert {"where", "owner", *get_type_hints(OpenOptions)} == set(parameters)
    with pytest.raises(InvalidInput, match="`create`"):
        opened(tmp_path / "t", create="never")
    with pytest.raises(TypeError, match="unexpected keyword argument 'creat'"):
        opened(tmp_path / "t", creat=True)


def _message(node: ast.expr) -> str:
    """The text of a message, with {} for what is filled in."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def test_an_error_that_names_one_argument_of_an_operation_has_it_as_a_fact() -> None:
    """`facts.argument` says which, so that a form or a program can point at the field."""
    offered = {name for each in OPERATIONS.values() for name in each.arguments.model_fields}
    unnamed = []
    for path in sorted((Path(__file__).parents[3] / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            kind = getattr(getattr(node, "func", None), "id", "")
            if not isinstance(node, ast.Call) or kind not in ("InvalidInput", "InvalidRecord"):
                continue
            said = _message(node.args[0])
            named = set(re.findall(r"`([a-z_]+)`", said)) & offered
            is_given = any(keyword.arg == "argument" for keyword in node.keywords)
            if len(named) == 1 and not is_given and not re.match(r"`[a-z_{}]+`", said):
                unnamed.append(f"{path.name}:{node.lineno} {said[:60]}")
    assert unnamed == []
