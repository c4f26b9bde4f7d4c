"""Stored state is data: nothing in it runs, damage is named, and what is encrypted says nothing
without its key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import ormsgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from sqlalchemy import text
from tests.checkpointers.cipher import Cipher
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.errors import BlockedType, CorruptTally, InvalidInput, StorageError, TallystickError
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver, TallySerializer
from tallystick_langgraph import serde as serde_module

OpenTally = Callable[..., Tally]
ALICE = Actor(user="alice")


class Draft(BaseModel):
    title: str


@dataclass
class Note:
    draft: Draft
    words: int = 0


class _State(TypedDict):
    note: Note
    log: Annotated[list[Any], lambda old, new: old + new]


def _config(thread: str = "t", **named: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def _put(saver: TallySaver, values: dict[str, Any], thread: str = "t") -> RunnableConfig:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": values}
    return saver.put(_config(thread), checkpoint, {"step": 1, "user_id": "u-4711"}, {})  # type: ignore[typeddict-unknown-key]


def _values(saver: TallySaver, thread: str = "t") -> dict[str, Any]:
    stored = saver.get_tuple(_config(thread))
    assert stored is not None
    return stored.checkpoint["channel_values"]


def _noted(state: _State) -> dict[str, Any]:
    return {"log": [Note(state["note"].draft, 1)]}


@pytest.fixture
def next_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets which types this process has written, as the next one does."""
    return lambda: monkeypatch.setattr(serde_module, "_own", set())


def test_state_of_the_graphs_own_types_comes_back(open_sqlite: OpenTally) -> None:
    graph = StateGraph(_State)
    graph.add_node("write", _noted)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    with open_sqlite() as tally:
        compiled = graph.compile(checkpointer=TallySaver(tally))
        compiled.invoke({"note": Note(Draft(title="a")), "log": []}, _config())
        state = compiled.get_state(_config()).values

    assert state == {"note": Note(Draft(title="a")), "log": [Note(Draft(title="a"), 1)]}


def test_the_next_process_builds_only_what_it_was_told_to(
    open_sqlite: OpenTally, next_process: Callable[[], None]
) -> None:
    with open_sqlite() as tally:
        _put(TallySaver(tally), {"note": Note(Draft(title="a"))})
        next_process()
        with pytest.raises(BlockedType, match=r"\(note\) holds .*Note, .*allow=\[Note\]"):
            TallySaver(tally).get_tuple(_config())
        allowed = _values(TallySaver(tally, allow=[_State]))
        by_name = _values(TallySaver(tally, allow=[(__name__, "Note"), (__name__, "Draft")]))
        by_graph = TallySaver(tally).with_allowlist({(__name__, "Note"), (__name__, "Draft")})

        assert allowed == by_name == _values(by_graph) == {"note": Note(Draft(title="a"))}


def test_a_type_that_the_next_process_will_refuse_is_named_once(
    open_sqlite: OpenTally, next_process: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    next_process()
    with open_sqlite() as tally:
        _put(TallySaver(tally), {"draft": Draft(title="a")})
        _put(TallySaver(tally), {"draft": Draft(title="b")})

    assert [
        record.getMessage() for record in caplog.records if "allow=[Draft]" in record.getMessage()
    ] == [
        f"State holds {__name__}.Draft. This process reads it back; so that the next one does, "
        f"allow it: "
        "TallySaver(tally, allow=[Draft])"
    ]


def test_allow_is_refused_beside_a_serializer_that_it_would_not_reach(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput, match="default serializer"):
        TallySaver(tally, serde=JsonPlusSerializer(), allow=[Draft])


def _hostile(code: int, *content: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(content)))


@pytest.mark.parametrize(
    "body",
    [
        _hostile(0, "os", "system", "touch {}"),
        _hostile(1, "subprocess", "check_output", [["touch", "{}"]]),
        _hostile(2, "builtins", "open", {"file": "{}", "mode": "w"}),
        _hostile(3, "pathlib", "Path", "{}", "touch"),
        _hostile(4, "builtins", "open", {"file": "{}", "mode": "w"}),
        _hostile(5, "builtins", "open", {"file": "{}", "mode": "w"}, "model_validate_json"),
        ormsgpack.packb([ormsgpack.Ext(7, _hostile(0, "os", "system", "touch {}"))]),
        _hostile(
            5,
            "langchain_core.messages.human",
            "HumanMessage",
            {"content": ormsgpack.Ext(0, ormsgpack.packb(("os", "system", "touch {}")))},
            "x",
        ),
    ],
)
def test_a_stored_value_that_names_code_is_refused_and_runs_nothing(
    tmp_path: Any, next_process: Callable[[], None], body: bytes
) -> None:
    next_process()
    target = tmp_path / "ran"
    hostile = body.replace(b"{}", str(target)[-2:].encode())

    with pytest.raises(BlockedType):
        TallySerializer().loads_typed(("msgpack", hostile))
    assert not os.path.exists(str(target)[-2:])
    assert not target.exists()


@pytest.mark.parametrize("kind", ["pickle", "json", "msgpack+aes", "strange"])
def test_only_kinds_that_are_written_are_read(kind: str) -> None:
    with pytest.raises(CorruptTally):
        TallySerializer().loads_typed((kind, b"cos\nsystem\n(S'true'\ntR."))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_value_or_a_clear_error(body: bytes) -> None:
    with contextlib.suppress(TallystickError):
        TallySerializer().loads_typed(("msgpack", body))


def test_what_cannot_be_stored_is_refused_by_its_channel(open_sqlite: OpenTally) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = "bottom"
    for _ in range(5000):
        deep = {"down": deep}
    with open_sqlite() as tally:
        for value in (object(), circle, deep, [open], {"a": {"b": [lambda: 1]}}):
            with pytest.raises(InvalidInput, match="'thing'"):
                _put(TallySaver(tally), {"thing": value})
        assert TallySaver(tally).get_tuple(_config()) is None


def test_huge_values_come_back(open_sqlite: OpenTally) -> None:
    huge = {"text": "x" * 5_000_000, "list": list(range(100_000)), "bytes": os.urandom(1_000_000)}
    with open_sqlite() as tally:
        _put(TallySaver(tally), {"huge": huge})
        assert _values(TallySaver(tally)) == {"huge": huge}


_COLUMNS = [
    ("thread_states", "state"),
    ("thread_states", "metadata"),
    ("thread_states", "code"),
    ("tree_parts", "body"),
    ("tree_parts", "digest"),
    ("thread_writes", "value"),
    ("thread_writes", "code"),
]


@given(
    st.sampled_from(_COLUMNS),
    st.integers(0, 10**6),
    st.sampled_from(["flip", "cut", "empty", "noise", "bomb"]),
    st.integers(1, 255),
    st.booleans(),
)
@pytest.mark.soak
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_named_and_reaches_no_other_thread(
    open_sqlite: OpenTally,
    column: tuple[str, str],
    place: int,
    how: str,
    bits: int,
    encrypted: bool,
) -> None:
    table, name = column
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted() if encrypted else None)
        messages = [HumanMessage(f"message {number}", id=str(number)) for number in range(40)]
        for thread, more in (("t", "mine"), ("u", "theirs")):
            saver.delete_thread(thread)
            stored = _put(
                saver,
                {"messages": [*messages, HumanMessage(more, id="x")], "text": more * 100},
                thread,
            )
            saver.put_writes(stored, [("messages", [HumanMessage(more * 9, id="y")])], "task")
        mine, theirs = (repr(saver.get_tuple(_config(thread))) for thread in ("t", "u"))

        def unit(tx: Any) -> None:
            rows = tx.execute(text(_SELECT.format(table=table, name=name, key=_KEYS[table]))).all()
            key, body = rows[place % len(rows)]
            tx.execute(
                text(f"UPDATE {table} SET {name} = :body WHERE {_KEYS[table]} = :key"),
                {"body": _damaged(bytes(body), place, how, bits), "key": key},
            )

        services_of(tally).store.database.write(unit, name="damage")
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted() if encrypted else None)
        try:
            # A bit that compression does not use may turn without any harm; then nothing else may
            # be different.
            assert repr(saver.get_tuple(_config("t"))) == mine
            assert how == "flip"
        except (CorruptTally, StorageError):
            pass
        assert repr(saver.get_tuple(_config("u"))) == theirs
        # Tidy: what is damaged can still be deleted.
        for thread in ("t", "u"):
            saver.delete_thread(thread)


_KEYS = {"thread_states": "thread_id", "tree_parts": "id", "thread_writes": "thread_id"}
_SELECT = (
    "SELECT {key}, {name} FROM {table} WHERE {key} IN ("
    "SELECT h.part_id FROM tree_holds h JOIN threads t ON t.id = h.thread_id WHERE t.name = 't' "
    "AND '{table}' = "
    "'tree_parts' AND h.part_id NOT IN (SELECT o.part_id FROM tree_holds o JOIN threads t ON "
    "t.id = o.thread_id "
    "WHERE t.name = 'u') UNION SELECT id FROM threads WHERE name = 't' AND '{table}' <> "
    "'tree_parts') ORDER BY {key}"
)


def _damaged(body: bytes, place: int, how: str, bits: int) -> bytes:
    at = place % len(body)
    return {
        "flip": body[:at] + bytes((body[at] ^ bits,)) + body[at + 1 :],
        "cut": body[:at],
        "empty": b"",
        "noise": hashlib.sha256(body).digest(),
        "bomb": b"\x01\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + body,
    }[how]


def _encrypted(key: bytes = b"secret") -> EncryptedSerializer:
    return EncryptedSerializer(Cipher(key), TallySerializer())


_SECRET = "violet submarine"


def _stored_bytes(tally: Tally) -> bytes:
    """Every value of every table, as one."""
    with services_of(tally).store.database.read() as connection:
        tables = (
            connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'"))
            .scalars()
            .all()
        )
        return b"\x00".join(
            value if isinstance(value, bytes) else str(value).encode()
            for table in tables
            for row in connection.execute(text(f'SELECT * FROM "{table}"'))
            for value in row
        )


@pytest.mark.sqlite
def test_encrypted_state_leaves_nothing_in_the_clear(open_sqlite: OpenTally) -> None:
    """Not even short texts, numbers and metadata, which other savers keep as they are; filters
    still find them.
    """
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted())
        values = {
            "messages": [HumanMessage(_SECRET, id=str(number)) for number in range(70)],
            "text": _SECRET,
            "number": 918273645,
            "nested": {"deep": [_SECRET]},
        }
        stored = _put(saver, values)
        saver.put_writes(stored, [("text", _SECRET)], "task")
        held = _stored_bytes(tally)

        assert _values(saver) == values
        listed = saver.list(_config(), filter={"user_id": "u-4711"})
        assert [dict(item.metadata)["user_id"] for item in listed] == ["u-4711"]
        assert list(saver.list(_config(), filter={"user_id": "other"})) == []
    for word in (_SECRET, "violet", "918273645", "u-4711"):
        assert word.encode() not in held


def test_encrypted_state_is_stored_once_and_grows_with_what_is_new(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted())
        messages: list[Any] = []
        config = _config()
        for number in range(40):
            messages.append(HumanMessage(f"message {number}", id=str(number)))
            checkpoint: Any = {**empty_checkpoint(), "channel_values": {"messages": messages}}
            config = saver.put(config, checkpoint, {}, {})
        with services_of(tally).store.database.read() as connection:
            pieces = connection.execute(text("SELECT count(*) FROM tree_parts")).scalar()

    # 31 messages by themselves, the first 32 as one pack, and 8 more by themselves.
    assert pieces == 31 + 1 + 8


def test_without_the_key_encrypted_state_does_not_open(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _put(TallySaver(tally, serde=_encrypted()), {"text": _SECRET})
    with open_sqlite() as tally:
        for serde in (_encrypted(b"other"), None, TallySerializer()):
            with pytest.raises(StorageError):
                TallySaver(tally, serde=serde).get_tuple(_config())


def test_state_that_was_written_without_the_key_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        _put(TallySaver(tally), {"text": "forged"})
        with pytest.raises(CorruptTally):
            TallySaver(tally, serde=_encrypted()).get_tuple(_config())


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("table", ["thread_states", "tree_parts", "thread_writes"])
def test_a_row_put_in_the_place_of_another_is_refused(
    open_sqlite: OpenTally, table: str, encrypted: bool
) -> None:
    """Ciphertexts that are authentic, but of another thread, are accepted by other savers."""
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted() if encrypted else None)
        for thread in ("t", "u"):
            stored = _put(saver, {"text": thread * 500}, thread)
            saver.put_writes(stored, [("text", thread * 300)], "task")
        columns = {
            "thread_states": "metadata, state, code, position",
            "tree_parts": "body",
            "thread_writes": "value, code",
        }[table]

        def unit(tx: Any) -> None:
            key = _KEYS[table]
            names = columns.split(", ")
            rows = tx.execute(text(f"SELECT {key}, {columns} FROM {table} ORDER BY {key}")).all()
            for row, other in zip(rows, reversed(rows), strict=True):
                put = ", ".join(f"{name} = :{name}" for name in names)
                tx.execute(
                    text(f"UPDATE {table} SET {put} WHERE {key} = :key"),
                    {"key": row[0], **dict(zip(names, other[1:], strict=True))},
                )

        services_of(tally).store.database.write(unit, name="swap")
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_encrypted() if encrypted else None)
        for thread in ("t", "u"):
            with pytest.raises(CorruptTally):
                saver.get_tuple(_config(thread))


def test_two_scopes_hold_equal_state_under_different_digests(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        for user in ("alice", "bob"):
            _put(
                TallySaver(tally.bind(Actor(user=user)), serde=_encrypted()), {"text": _SECRET * 50}
            )
        with services_of(tally).store.database.read() as connection:
            digests = connection.execute(text("SELECT digest FROM tree_parts")).scalars().all()

    assert len(set(digests)) == 2


class _Upper:
    """A serializer of an application's own."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "upper", repr(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0] == "upper"
        return eval(data[1])


def test_a_serializer_of_your_own_reads_and_writes_every_value(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        saver = TallySaver(tally, serde=_Upper())
        stored = _put(saver, {"list": [1, (2, 3)], "none": None})
        saver.put_writes(stored, [("list", (4,))], "task")
        checkpoint = saver.get_tuple(_config())

    assert checkpoint is not None
    assert checkpoint.checkpoint["channel_values"] == {"list": [1, (2, 3)], "none": None}
    assert checkpoint.pending_writes == [("task", "list", (4,))]
