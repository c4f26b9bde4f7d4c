"""Records keep what they were given: round trips, canonical form, digests, scopes and actors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from tallystick import records
from tallystick.errors import InvalidInput, InvalidRecord, InvalidScope
from tallystick.records import (
    FIRST_MOMENT,
    KINDS,
    LAST_MOMENT,
    Actor,
    AlertLimits,
    ArgumentCondition,
    ContextItem,
    HistoryEntry,
    Labels,
    MemorySpace,
    MomentField,
    NewMemory,
    OccasionField,
    OutlineSection,
    Persisted,
    Record,
    ReplayRecipe,
    Scope,
    ScopeKind,
    SourceRef,
    SpaceMember,
    SpaceRole,
    SynthesisRequest,
    Words,
    canonical_json,
    commitment,
    digest,
    is_storable,
    json_bytes,
    part_key,
    register_kind,
    text_digest,
    validate_attributes,
)

CLASSES = [
    value
    for name in records.__all__
    if inspect.isclass(value := getattr(records, name))
    and issubclass(value, Record)
    and value not in (Record, Persisted)
]
PERSISTED = {
    "AccessToken",
    "Approval",
    "CompilationRequest",
    "CompileConfig",
    "CompiledContext",
    "JournalEntry",
    "Memory",
    "MemorySpace",
    "PolicyRule",
    "Proposal",
    "Receipt",
    "ReplayRecipe",
    "RunRecord",
    "Source",
    "StepRecord",
    "Tape",
}

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
"""Half characters included."""
names = st.text(max_size=12)
whole = st.integers(-(2**53) + 1, 2**53 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | whole | finite | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)
canonical_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | whole | names,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner)
    ),
    max_leaves=12,
)
scopes = st.builds(
    Scope,
    kind=st.sampled_from([kind for kind in get_args(ScopeKind) if kind != "public"]),
    key=st.text(min_size=1, max_size=12),
    organization=st.none() | names,
) | st.builds(Scope, kind=st.just("public"), organization=st.none() | names)
actors = st.builds(
    Actor,
    user=names.filter(str.strip),
    agent=st.none() | names,
    acting_for=st.none() | names,
    organization=st.none() | names,
    projects=st.sets(any_text, max_size=3),
    delegations=st.sets(any_text, max_size=3),
    role=st.sampled_from(["member", "operator"]),
    surface=names,
)

members = st.builds(
    SpaceMember,
    principal_type=st.sampled_from(["user", "agent", "project", "organization"]),
    principal_id=st.text(min_size=1, max_size=12),
    role=st.sampled_from(get_args(SpaceRole)),
    permissions=st.lists(st.sampled_from(["read", "export"])).map(tuple),
    expires_at=st.none() | whole,
)

argument_conditions = st.builds(
    lambda path, test: ArgumentCondition.load({"path": path, **test}),
    any_text,
    st.one_of(
        st.fixed_dictionaries({"equals": json_values.filter(lambda value: value is not None)}),
        st.fixed_dictionaries({"one_of": st.lists(json_values, min_size=1, max_size=3).map(tuple)}),
        st.fixed_dictionaries({"matches": any_text}),
        st.fixed_dictionaries({"contains": any_text.filter(bool)}),
    ),
)
"""Each with exactly one test."""


titles = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
outlines = st.builds(
    OutlineSection,
    title=titles,
    query=titles,
    sections=st.lists(st.builds(OutlineSection, title=titles), max_size=2).map(tuple),
)
syntheses = st.builds(
    SynthesisRequest, query=titles, outline=st.lists(outlines, max_size=2).map(tuple)
)


@cache
def instances(record: type[Record]) -> st.SearchStrategy[Any]:
    """Any record of this class, every field filled from its own annotation and bounds."""
    strategies: dict[type[Record], st.SearchStrategy[Any]] = {
        Scope: scopes,
        Actor: actors,
        SpaceMember: members,
        ArgumentCondition: argument_conditions,
        OutlineSection: outlines,
        SynthesisRequest: syntheses,
        AlertLimits: st.builds(AlertLimits, spike_factor=st.floats(1.5, 100.0)),
    }
    if record in strategies:
        return strategies[record]
    fields = {
        name: values(field.annotation, tuple(field.metadata))
        for name, field in record.model_fields.items()
    }
    if record is MemorySpace:
        fields |= {
            "scope": scopes.filter(lambda scope: scope.kind not in ("private", "diary")),
            "members": st.lists(members, max_size=3, unique_by=_principal).map(tuple),
        }
    return st.fixed_dictionaries(fields).map(record.load)


def _principal(member: SpaceMember) -> tuple[str, str]:
    return member.principal_type, member.principal_id


def values(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Any value of an annotation that a record uses; an annotation of a new form fails here, so it
    is noticed.
    """
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: any_text,
        bool: st.booleans(),
        float: finite,
        NoneType: st.none(),
        JsonValue: json_values,
    }
    if annotation is int:
        bounds = {
            key: getattr(limit, key)
            for limit in metadata
            for key in ("ge", "le")
            if hasattr(limit, key)
        }
        return st.integers(bounds.get("ge", -(2**63)), bounds.get("le", 2**63 - 1))
    if annotation in simple:
        return simple[annotation]
    if inspect.isclass(annotation) and issubclass(annotation, Record):
        return instances(annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation in (MomentField, OccasionField):
        naive = st.datetimes()
        away = st.timedeltas(timedelta(-9_999), timedelta(9_999))
        moments = st.integers(FIRST_MOMENT, LAST_MOMENT) | naive
        return moments if annotation == MomentField else moments | away
    if annotation == Words:
        return any_text.filter(is_storable)
    if metadata == get_args(Labels)[1:]:
        return st.lists(any_text.filter(is_storable), max_size=3).map(tuple)
    if origin is Annotated:
        return values(
            inner[0],
            (
                *metadata,
                *(
                    limit
                    for limits in inner[1:]
                    for limit in getattr(limits, "metadata", (limits,))
                ),
            ),
        )
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return reduce(or_, (values(each, metadata) for each in inner))
    if origin is Sequence:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is tuple and inner[1:] == (...,):
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inner))
    if origin is dict:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if origin is AbstractSet:
        return st.frozensets(values(inner[0]), max_size=3)
    raise NotImplementedError(annotation)


@pytest.mark.parametrize("record", CLASSES, ids=lambda record: record.__name__)
@settings(max_examples=settings().max_examples // 6)
@given(data=st.data())
def test_a_record_comes_back_from_its_json_as_it_was(
    record: type[Record], data: st.DataObject
) -> None:
    original = data.draw(instances(record))

    text = original.dumps()

    assert record.loads(text) == original
    assert record.loads(text.encode()) == original
    assert record.load(original.dump()) == original
    assert record.loads(text).dumps() == text
    brief = original.dump(defaults=False)
    assert record.load(brief) == original
    assert ("schema_version" in brief) == issubclass(record, Persisted)


@pytest.mark.parametrize("record", CLASSES, ids=lambda record: record.__name__)
@settings(max_examples=3)
@given(data=st.data())
def test_a_record_is_frozen_and_closed_to_unknown_fields(
    record: type[Record], data: st.DataObject
) -> None:
    original = data.draw(instances(record))
    name = data.draw(st.sampled_from(sorted(record.model_fields)))

    with pytest.raises(ValidationError, match="frozen"):
        setattr(original, name, getattr(original, name))
    with pytest.raises(InvalidRecord, match="unheard_of"):
        original.replace(unheard_of=1)
    assert original.replace() == original


@given(st.dictionaries(names, st.lists(whole, max_size=2), min_size=1))
def test_a_record_does_not_change_with_what_it_was_made_of(
    given_data: dict[str, list[int]],
) -> None:
    """Later changes to the caller's own dictionaries and lists do not reach a record."""
    memory = NewMemory.load({"content": "x", "attributes": given_data})
    entry = HistoryEntry.load(
        {
            "sequence": 0,
            "event": "ADD",
            "at": 0,
            "actor": given_data,
            "surface": "python",
            "version": 1,
            "audit_id": "a",
        }
    )
    before = memory.dumps(), entry.dumps()

    for inner in given_data.values():
        inner.append(7)
    given_data["late"] = []

    assert (memory.dumps(), entry.dumps()) == before


def test_what_is_persisted_carries_the_version_of_its_shape() -> None:
    versioned = {record.__name__ for record in CLASSES if "schema_version" in record.model_fields}

    assert versioned == PERSISTED
    assert {record.__name__ for record in CLASSES if issubclass(record, Persisted)} == PERSISTED
    assert (
        json.loads(ReplayRecipe(id="r", source_run_id="a", source_step_id="b").dumps())[
            "schema_version"
        ]
        == 1
    )


def test_a_wrong_field_is_named_and_its_value_is_not_told() -> None:
    with pytest.raises(InvalidRecord) as raised:
        ContextItem.load({"id": "a", "kind": "note", "content": ["hunter2"], "trust_score": 101})

    assert str(raised.value).startswith("ContextItem: kind: ")
    assert "trust_score: Input should be less than or equal to 100" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"a"', '{"content": 1}', '{"content": "\\ud8zz"}']
)
def test_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecord, match="NewMemory"):
        NewMemory.loads(text)


def test_sets_of_names_are_written_in_order() -> None:
    item = ContextItem(id="a", kind="file", content="", tags={"pinned", "hard", "blocking"})

    assert json.loads(item.dumps())["tags"] == ["blocking", "hard", "pinned"]


@given(canonical_values)
def test_the_canonical_form_reads_back_and_is_its_own_canonical_form(value: Any) -> None:
    form = canonical_json(value)

    assert json.loads(form) == value
    assert canonical_json(json.loads(form)) == form


@given(st.dictionaries(st.text(st.characters(max_codepoint=127)), canonical_values), st.randoms())
def test_the_order_of_keys_does_not_matter(value: dict[str, Any], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)

    assert canonical_json(dict(shuffled)) == canonical_json(value)


def _wrapped(value: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([value, [value], {"a": value}, {"a": [0, {"b": value}]}])


@given(st.floats().flatmap(_wrapped))
def test_floats_have_no_canonical_form(value: Any) -> None:
    with pytest.raises(InvalidInput, match="float"):
        canonical_json(value)


@given(
    st.text(st.characters(codec=None, exclude_categories=()), min_size=1).filter(
        lambda key: not key.isascii()
    )
)
def test_a_key_beyond_ascii_has_no_canonical_form(key: str) -> None:
    with pytest.raises(InvalidInput, match="ASCII"):
        canonical_json({"a": [{key: 1}]})


def _circle() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value", [b"bytes", {1: 2}, {None: 1}, {"a"}, object(), "\ud800", ["\udfff"], _circle()]
)
def test_what_is_not_json_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(InvalidInput):
        canonical_json(value)


@given(json_values)
def test_stored_json_comes_back_whatever_text_it_holds(value: Any) -> None:
    assert json.loads(json_bytes(value)) == value


DIGESTS: dict[str, Callable[[str, bytes], str]] = {
    "value": lambda domain, body: digest(domain, body.hex()),
    "text": text_digest,
    "commitment": lambda domain, body: commitment(domain, b"salt", body),
}


@pytest.mark.parametrize("kind", DIGESTS)
@given(
    domains=st.lists(
        st.from_regex(r"[a-z/_-]{1,12}", fullmatch=True), min_size=2, max_size=2, unique=True
    )
)
def test_one_body_has_another_digest_in_each_domain(kind: str, domains: list[str]) -> None:
    first, second = (DIGESTS[kind](domain, b"body") for domain in domains)

    assert first.startswith("sha256:")
    assert first != second


@given(st.binary(max_size=6), st.binary(max_size=6), st.integers(0, 12))
def test_a_commitment_tells_salt_and_body_apart(salt: bytes, body: bytes, cut: int) -> None:
    """Moving bytes over the border between salt and body gives another commitment."""
    joined = salt + body
    other = joined[: min(cut, len(joined))], joined[min(cut, len(joined)) :]

    assert (commitment("d", *other) == commitment("d", salt, body)) == (other == (salt, body))
    assert commitment("d", salt, body) != text_digest("d", body)


@given(st.binary(), st.binary(min_size=1), st.binary(min_size=1))
def test_a_part_has_its_own_key_in_each_scope(body: bytes, first: bytes, other: bytes) -> None:
    # HMAC pads a key with zero bytes, so keys that differ only in those are one key.
    assert (part_key(first, body) == part_key(other, body)) == (
        first.rstrip(b"\0") == other.rstrip(b"\0")
    )


def test_digests_stay_what_they_were() -> None:
    """Stored chains hold these: a changed value here is a changed format."""
    assert (
        canonical_json({"b": [1, True, None], "a": "ü\n"})
        == '{"a":"ü\\n","b":[1,true,null]}'.encode()
    )
    assert (
        digest("event", {"a": 1})
        == "sha256:36612c4956697cd04a72570392dbfc65ac8dcd0f868018d70fab27fae935abcc"
    )
    assert (
        commitment("memory", b"salt", b"body")
        == "sha256:dd237b6aaec2a7a81ebd5e1ac318d3c2b9eb8eaffede66d331351ab453b29b10"
    )
    assert (
        part_key(b"key", b"body")
        == "hmac-sha256:c9abba42023c749b6560667c27982ed3e7018acbc823fd8ba428014c13fa4d3f"
    )


@pytest.mark.smoke
@given(scopes)
def test_a_scope_reads_back_from_its_text(scope: Scope) -> None:
    assert Scope.parse(str(scope)) == scope
    assert Scope.loads(scope.dumps()) == scope
    assert hash(Scope.parse(str(scope))) == hash(scope)


@given(scopes, scopes)
def test_two_scopes_never_share_a_text(first: Scope, other: Scope) -> None:
    assert (str(first) == str(other)) == (first == other)


@given(names)
def test_text_without_a_known_kind_is_no_scope(text: str) -> None:
    with pytest.raises(InvalidScope, match="private:alice"):
        Scope.parse(f"secret{text}")


@pytest.mark.parametrize(
    "text", ["", ":", "private", "private:", "public:all", "PRIVATE:alice", "private:\ud800"]
)
def test_a_scope_that_is_not_well_formed_is_refused(text: str) -> None:
    with pytest.raises(InvalidScope):
        Scope.parse(text)


@given(scopes, st.none() | names)
def test_a_scope_is_seen_from_an_organization_only_if_it_names_none(
    scope: Scope, organization: str | None
) -> None:
    expected = organization if scope.organization is None else scope.organization

    assert scope.within(organization) == scope.replace(organization=expected)


@given(actors)
def test_an_actor_with_an_agent_is_never_an_operator(actor: Actor) -> None:
    assert actor.is_operator == (actor.role == "operator" and actor.agent is None)
    assert not actor.replace(agent="bot").is_operator
    assert not actor.replace(agent="").is_operator


@given(actors, scopes)
def test_an_actor_works_at_home_within_its_organization(actor: Actor, scope: Scope) -> None:
    assert actor.home() == Scope(kind="private", key=actor.user, organization=actor.organization)
    assert actor.home(str(scope)) == actor.home(scope) == scope.within(actor.organization)


@given(actors, names)
def test_an_actor_on_another_surface_is_otherwise_the_same(actor: Actor, surface: str) -> None:
    assert actor.on(surface) == actor.replace(surface=surface)


@pytest.mark.parametrize("user", ["", " \n", "\ud800"])
def test_an_actor_must_name_somebody(user: str) -> None:
    with pytest.raises(InvalidRecord, match="user"):
        Actor.load({"user": user})


@given(actors)
def test_the_identity_in_the_journal_is_canonical(actor: Actor) -> None:
    assert json.loads(canonical_json(actor.identity())) == actor.identity()


def test_a_kind_is_registered_once_and_checks_its_attributes() -> None:
    from pydantic import BaseModel

    class Recipe(BaseModel):
        servings: int

    try:
        register_kind("test_recipe", Recipe)
        register_kind("test_recipe", Recipe)
        validate_attributes("test_recipe", {"servings": 4})
        with pytest.raises(InvalidRecord, match=r"attributes of test_recipe: servings: "):
            validate_attributes("test_recipe", {"servings": "many"})
        with pytest.raises(InvalidRecord, match="registered already"):
            register_kind("test_recipe")
    finally:
        KINDS.pop("test_recipe", None)
    with pytest.raises(InvalidRecord, match="register_kind"):
        validate_attributes("test_recipe", {})


def test_an_exact_replay_changes_nothing() -> None:
    recipe = ReplayRecipe(id="r", source_run_id="a", source_step_id="b")

    assert recipe.is_exact
    assert not recipe.replace(token_budget=0).is_exact
    assert not recipe.replace(context_mutations={"memory": None}).is_exact


def test_a_reference_to_a_source_keeps_any_text() -> None:
    """Half a character in a title, a value or a key comes back as half a character."""
    reference = SourceRef(title="half \ud83d of it", metadata={"\ud800": ["\udfff"]})

    assert SourceRef.loads(reference.dumps()) == reference


def test_the_check_of_every_record_can_be_built() -> None:
    """It is built when a record is first used: what cannot be built is found here."""

    def kinds(base: type[Record]) -> list[type[Record]]:
        return [each for kind in base.__subclasses__() for each in (kind, *kinds(kind))]

    for kind in kinds(Record):
        kind.model_rebuild()
        assert kind.__pydantic_complete__, kind
