"""Binder: who acts in a call of a runtime, and the view of the tally that acts as this actor.

One answer for every piece of every runtime. In this order:

1. `actor=` of the piece: an Actor, or a function of the call, which decides alone;
2. the actor of the view that the piece was made with (`tally.bind(Actor(…))`);
3. `Tally.open(actor_from=…)`, one function for all pieces, which decides alone;
4. the places in which the runtime carries identity: `configurable`, the runtime context, the
   dependencies, the metadata. Each may name an Actor (itself, or as `actor`), or the id of a user
   (`user_id`, `langgraph_user_id`, `langgraph_auth_user_id`);
5. the run under way in this context, which has an actor;
6. the owner, as long as no runtime has ever named another user of this tally.

An Actor of 1 or 2 and the places of 4 must agree, and so must two places: otherwise the call is
refused with `principal_mismatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from tallystick.errors import Denied, InvalidInput
from tallystick.kit.arguments import check_actor, check_scope, check_tally, describe_value
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.recorder import Run, active_run, active_step
from tallystick.records import AccessDecision, Actor, CallContext, Scope
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of


class RemoteBinder:
    """Gives each call of one piece the tally behind a server. Thread-safe."""

    is_fixed = True
    """Every call has the same actor, whatever it carries."""

    def __init__(
        self,
        tally: TallyElsewhere,
        *,
        runtime: str,
        piece: str,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        """Raises InvalidInput for an `actor`, and InvalidScope."""
        if actor is not None:
            raise InvalidInput(
                f"{piece} on a tally behind a server acts as whom its token names. Leave `actor` "
                "out, and connect with a token of that user.",
                argument="actor",
            )
        check_scope(scope)
        self._tally = tally if scope is None else tally.within(scope)
        self._scope = scope
        self._runtime, self._piece = runtime, piece
        self._actor: Actor | None = None

    @property
    def tally(self) -> TallyElsewhere:
        """The tally behind the server."""
        return self._tally

    def describe(self, **options: Any) -> str:
        """Return the piece as a short text for `repr`."""
        facts = {"scope": None if self._scope is None else str(self._scope), **options}
        given = [f"{name}={value!r}" for name, value in facts.items() if value is not None]
        return f"{self._piece}({', '.join([repr(self._tally), *given])})"

    def call(self, **places: Any) -> CallContext:
        """Return the context of a call of this piece, with the places that the runtime fills."""
        return CallContext(self._runtime, self._piece, **places)

    def current_run_id(self) -> None:
        """Return None: nothing here is recorded by that tally."""

    def bound(self, call: CallContext | None = None) -> TallyElsewhere:
        """Return the tally for one call. Raises Denied with `principal_mismatch` where the call
        names another user than the token.
        """
        named = None if call is None else named_actor(call)
        if call is not None and named is not None:
            if self._actor is None:
                self._actor = self._tally.whoami()
            refuse_other(call, self._actor, named)
        return self._tally

    def refuse_namespaces(
        self,
        call: CallContext,
        namespaces: Iterable[Sequence[str]],
        template: Sequence[str] | None = None,
    ) -> None:
        """Same as that of `Binder`, as far as a template says which label is the user."""
        if template is not None:
            self._actor = self._actor or self._tally.whoami()
            _refuse_labels(call, self._actor, labels_of_users(namespaces, template))


def binder_of(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    runtime: str,
    piece: str,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
) -> Binder | RemoteBinder:
    """Return the binder of a piece that works on a tally here and on one that is elsewhere. Raises
    InvalidInput, InvalidScope.
    """
    if isinstance(tally, TallyElsewhere):
        return RemoteBinder(tally, runtime=runtime, piece=piece, actor=actor, scope=scope)
    return Binder(tally, runtime=runtime, piece=piece, actor=actor, scope=scope)


ActorSource: TypeAlias = Actor | Callable[[CallContext], Actor | None]
"""The Actor of every call, or a function from a call to its Actor."""

HANDED_TO = "__tally_actor"
"""Key of `configurable` in a config that a piece handed out, with the name of whoever got it: for
names that no other key of the config repeats.
"""

IDENTITY_KEYS = ("actor", "user_id", "langgraph_user_id", "langgraph_auth_user_id", HANDED_TO)
"""Names under which a mapping or an object may name who acts."""

PREGEL_RUNTIME = "__pregel_runtime"
"""Key of LangGraph's runtime, with the context of the call, in `configurable`."""


class _NamedActor(NamedTuple):
    """An actor and the place in the call that names it."""

    place: str
    actor: Actor
    is_whole: bool
    """False if only the id of the user is named."""


def named_actor(call: CallContext) -> Actor | None:
    """Return the actor that the places of a call name, or None. Pure.

    An Actor counts before the bare id of its user. Raises Denied with `principal_mismatch` if two
    places name different users, InvalidInput for a value that is neither an Actor nor an id.
    """
    names = list(_names_in(call))
    if not names:
        return None
    first = next((name for name in names if name.is_whole), names[0])
    for other in names:
        if not _agree(first, other):
            raise _disagreement(call, first, other)
    return first.actor


def _names_in(call: CallContext) -> Iterator[_NamedActor]:
    for place in ("configurable", "context", "deps", "metadata"):
        value = getattr(call, place)
        if value is None:
            continue
        if isinstance(value, Actor):
            yield _NamedActor(place, value, True)
            continue
        for key in IDENTITY_KEYS:
            named = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
            if named is not None and named != "":
                yield _NamedActor(f"{place}.{key}", *_actor_of(place, key, named))


def _actor_of(place: str, key: str, value: Any) -> tuple[Actor, bool]:
    if isinstance(value, Actor):
        return value, True
    id = id_text(value)
    if id is not None:
        return _user(id), False
    raise InvalidInput(
        f"{key!r} in the {place} of this call is a {type(value).__name__}. Pass an Actor, or the "
        f"id of the user as text, a number or a UUID."
    )


def id_text(value: object) -> str | None:
    """Return an id that is text, a number or a UUID as text; None for anything else."""
    # A flag is an integer to Python, and nobody's id.
    is_id = isinstance(value, str | int | UUID) and not isinstance(value, bool)
    return str(value) if is_id else None


def _answer(actor: object, function: str) -> Actor | None:
    """Return the actor that a function of the application answered. Raises InvalidInput for
    anything that is none.
    """
    if actor is None or isinstance(actor, Actor):
        return actor
    raise InvalidInput(
        f"{function} returned {describe_value(actor)}. Return an Actor, such as "
        f"Actor(user='ann'), or None."
    )


@lru_cache(maxsize=4_096)
def _user(name: str) -> Actor:
    return Actor.load({"user": name})


def _plain_name(actor: Actor) -> str | Actor:
    """Return the id of an actor that is nothing but a user, which JSON can hold; else the actor."""
    return actor.user if _user(actor.user).same_as(actor) else actor


def _agree(first: _NamedActor, other: _NamedActor) -> bool:
    if other.is_whole:
        return other.actor.same_as(first.actor)
    return other.actor.user in (first.actor.user, first.actor.acting_for)


def principal_mismatch(call: CallContext, reason: str) -> Denied:
    """Return the refusal of a call that names another user than the one who acts; `reason` is a
    sentence and what to do.
    """
    decision = AccessDecision(
        allowed=False, reason="principal_mismatch", operation="read", surface=call.runtime
    )
    return Denied(decision, f"{call.piece} was refused: {reason}")


def _disagreement(call: CallContext, first: _NamedActor, other: _NamedActor) -> Denied:
    return principal_mismatch(
        call,
        f"{first.place} names {first.actor.user} and {other.place} names another actor "
        f"({other.actor.user}). Name one, or give `actor_from` a function that decides.",
    )


def refuse_other(call: CallContext, fixed: Actor, named: Actor) -> None:
    """Raise Denied with `principal_mismatch` unless the actor that a call names is the one that its
    piece has, or whom that one acts for.
    """
    if not (
        named.user in (fixed.user, fixed.acting_for)
        and named.organization in (None, fixed.organization)
    ):
        raise _disagreement(
            call, _NamedActor(call.piece, fixed, True), _NamedActor("the call", named, True)
        )


class _LastView(NamedTuple):
    """The view of the last call: most calls are those of one conversation."""

    actor: Actor | None
    session: str | None
    view: BoundTally


class Binder:
    """Binds each call of one piece of an adapter to its actor. Thread-safe."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        runtime: str,
        piece: str,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        usage: str | None = None,
    ) -> None:
        """`usage` is the line that makes the piece, with `{}` in place of the tally: by default
        the tally is its only argument. Raises InvalidInput, InvalidScope.
        """
        check_tally(tally, usage or f"{piece}({{}})")
        check_actor(actor, piece)
        check_scope(scope)
        self._tally = tally.tally if isinstance(tally, BoundTally) else tally
        self._services = services_of(self._tally)
        self._bound_actor = tally.actor if isinstance(tally, BoundTally) else None
        self._scope = (
            scope if scope is not None or not isinstance(tally, BoundTally) else tally.scope
        )
        self._actor = actor
        self._runtime, self._piece = runtime, piece
        self._last: _LastView | None = None

    def describe(self, **options: Any) -> str:
        """Return the piece as a short text for `repr`: its tally without a password, and what was
        given of actor, scope and `options`.
        """
        actor: Any = self._actor if self._actor is not None else self._bound_actor
        if isinstance(actor, Actor):
            actor = actor.user
        elif actor is not None:
            actor = getattr(actor, "__name__", type(actor).__name__)
        scope = None if self._scope is None else str(self._scope)
        facts = {"actor": actor, "scope": scope, **options}
        given = [f"{name}={value!r}" for name, value in facts.items() if value is not None]
        return f"{self._piece}({', '.join([repr(self._tally.location), *given])})"

    @property
    def tally(self) -> Tally:
        """The tally behind the adapter."""
        return self._tally

    @property
    def is_fixed(self) -> bool:
        """True if every call has the same actor, whatever it carries."""
        return isinstance(self._actor, Actor) or (
            self._actor is None and self._bound_actor is not None
        )

    @property
    def _is_decided(self) -> bool:
        """True if a function of the application decides alone who acts."""
        return callable(self._actor) or (
            not self.is_fixed and self._services.actor_from is not None
        )

    def is_common(self, config: Mapping[str, Any] | None) -> bool:
        """Return True if a call with this config of LangChain acts as every other that names
        nobody does: for calls that come often.
        """
        if self._is_decided:
            return False
        if self._run_under_way() is not None:
            return False
        if config is None:
            return True
        configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
        return getattr(configurable.get(PREGEL_RUNTIME), "context", None) is None and not any(
            key in configurable or key in metadata for key in IDENTITY_KEYS
        )

    def call(self, **places: Any) -> CallContext:
        """Return the context of a call of this piece, with the places that the runtime fills."""
        return CallContext(self._runtime, self._piece, **places)

    def bound(self, call: CallContext | None = None) -> BoundTally:
        """Return the view for one call; None is a call that carries only an id.

        Raises Denied with `principal_mismatch` where two places disagree; where nobody is named
        and a user was named before, the verbs of the view do, with `missing_actor`.
        """
        actor = self._actor_in(call)
        session = None if call is None else call.session
        last = self._last
        if last is None or last.actor is not actor or last.session != session:
            view = self._tally.bind(actor, self._scope, session_id=session)
            if actor is None and not self._services.owner_fallback:
                view = replace(view, actor=view.actor.model_copy(update={"assumed": True}))
            last = self._last = _LastView(actor, session, view.on(self._runtime))
        if call is not None and self._is_decided and HANDED_TO in call.configurable:
            # A function that falls back for want of what it reads would find nothing, and say so.
            self._refuse_fallback(call, last.view.actor)
        return last.view

    def _refuse_fallback(self, call: CallContext, actor: Actor) -> None:
        handed_to = call.configurable[HANDED_TO]
        name = _plain_name(actor)
        if isinstance(name, Actor) and isinstance(handed_to, Actor):
            agree = name.same_as(handed_to)
        else:
            agree = name == handed_to
        if not agree:
            other = _actor_of("configurable", HANDED_TO, handed_to)
            raise _disagreement(
                call,
                _NamedActor(f"the function that decides who acts in {self._piece}", actor, True),
                _NamedActor("the config, which was handed out before,", *other),
            )

    def names_to_carry(self, call: CallContext, actor: Actor) -> dict[str, Any]:
        """Return the entries of a config by which it goes on naming the actor of a call; empty
        where nobody was named.

        The keys that named who acts, as they came in. A function may read any, so it is given all
        of them again.
        """
        if self._is_decided:
            read = {k: v for k, v in call.configurable.items() if not k.startswith("__")}
            metadata = {"metadata": call.metadata} if call.metadata else {}
            return {"configurable": {**read, HANDED_TO: _plain_name(actor)}, **metadata}
        keys = {
            key: place[key]
            for place in (call.metadata, call.configurable)
            for key in IDENTITY_KEYS
            if place.get(key) not in (None, "")
        }
        owner = self._services.owner
        if not keys and not self.is_fixed and not (owner is not None and actor.same_as(owner)):
            # The runtime context or the run under way names who acts, which a config does not have.
            keys = {HANDED_TO: _plain_name(actor)}
        return {"configurable": keys} if keys else {}

    def actor_named_in(self, call: CallContext) -> Actor | None:
        """Return the actor that a call names by itself, or None. Raises as `bound`."""
        if callable(self._actor):
            return self._note_user(_answer(self._actor(call), f"The `actor` of {self._piece}"))
        fixed = self._actor if self._actor is not None else self._bound_actor
        if fixed is None and self._services.actor_from is not None:
            return self._note_user(_answer(self._services.actor_from(call), "`actor_from`"))
        named = named_actor(call)
        if fixed is None:
            return self._note_user(named)
        if named is not None:
            refuse_other(call, fixed, named)
        return fixed

    def refuse_namespaces(
        self,
        call: CallContext,
        namespaces: Iterable[Sequence[str]],
        template: Sequence[str] | None = None,
    ) -> None:
        """Raise Denied with `principal_mismatch` where a namespace names another user than the one
        who acts: by a label that stands where `template` has `{user_id}` or the like, or, in a call
        that names nobody, by one that is a user of this tally.
        """
        paths = list(namespaces)
        labels = labels_of_users(paths, template or ())
        if self._actor_in(call) is None:
            labels |= self._services.gate.users_among({label for path in paths for label in path})
        if labels:
            _refuse_labels(call, self.bound(call).actor, labels)

    def _actor_in(self, call: CallContext | None) -> Actor | None:
        if call is None:
            call = self.call()
            if not self.is_fixed:
                # A function is not asked about a call that carries nothing to answer by.
                return self._actor_of_run()
        return self.actor_named_in(call) or self._actor_of_run()

    def current_run_id(self) -> str | None:
        """Return the id of the run whose block this code is in, if this tally records it."""
        run = active_run.get()
        return run.id if run is not None and run.context is self._services.recorder else None

    def _actor_of_run(self) -> Actor | None:
        """Return the actor of the run under way, unless that is the owner."""
        run = self._run_under_way()
        owner = self._services.owner
        return (
            None if run is None or (owner is not None and run.actor.same_as(owner)) else run.actor
        )

    def _run_under_way(self) -> Run | None:
        step, run = active_step.get(), active_run.get()
        run = run if run is not None or step is None or not step.is_open else step.run
        return run if run is not None and run.context is self._services.recorder else None

    def _note_user(self, actor: Actor | None) -> Actor | None:
        """Return an actor that a call names, after the tally has noted that there are users."""
        owner = self._services.owner
        if (
            actor is not None
            and owner is not None
            and (actor.user, actor.organization) != (owner.user, owner.organization)
        ):
            self._services.gate.note_user(actor)
        return actor


_SESSION = ("thread_id", "session_id", "conversation_id")


def call_of_config(
    binder: Binder | RemoteBinder, config: Mapping[str, Any], *, context: Any = None
) -> CallContext:
    """Return the call that a config belongs to; `context` is LangGraph's runtime context, where
    the piece is given it apart from the config.
    """
    configurable = config.get("configurable") or {}
    metadata = config.get("metadata") or {}
    if context is None:
        context = getattr(configurable.get(PREGEL_RUNTIME), "context", None)
    return binder.call(
        configurable=configurable,
        context=context,
        metadata=metadata,
        session=session_of(metadata) or session_of(configurable),
    )


def session_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the thread, session or conversation of a call, as its history names it."""
    return next((str(metadata[name]) for name in _SESSION if metadata.get(name)), None)


def labels_of_users(namespaces: Iterable[Sequence[str]], template: Sequence[str]) -> set[str]:
    """Return the labels that stand where a template of namespaces has an identity in braces, such
    as `{user_id}`. Pure.
    """
    labels: set[str] = set()
    for namespace in namespaces:
        for expected, label in zip(template, namespace, strict=False):
            key = expected[1:-1] if _is_open(expected) else None
            if key in IDENTITY_KEYS:
                labels.add(label)
            elif key is None and label != expected:
                break
    return labels


def _refuse_labels(call: CallContext, actor: Actor, labels: Iterable[str]) -> None:
    for label in labels:
        if label not in (actor.user, actor.acting_for):
            raise principal_mismatch(
                call,
                f"it acts as {actor.user}, and the namespace names another user ({label}). Name "
                f"who acts in the config of the call, or give the piece the view of one user: "
                f"{call.piece}(tally.bind(Actor(user=…))).",
            )


def namespace_for(
    template: Sequence[str] | None, call: CallContext, actor: Actor
) -> tuple[str, ...] | None:
    """Return the namespace of a call: a label such as `{user_id}` is that key of `configurable`,
    and where it has none, `user_id` and `langgraph_user_id` are the acting user.

    Raises InvalidInput for a key that the call does not have: no label is ever left open.
    """
    if template is None:
        return None
    return tuple(_label(label, call, actor) for label in template)


def _is_open(label: str) -> bool:
    return label.startswith("{") and label.endswith("}")


def _label(label: str, call: CallContext, actor: Actor) -> str:
    if not _is_open(label):
        return label
    key = label[1:-1]
    value = call.configurable.get(key)
    if value is None and key in ("user_id", "langgraph_user_id"):
        value = actor.user
    if value is None:
        raise InvalidInput(f"The namespace needs {key!r}, which `configurable` does not have.")
    return str(value)
