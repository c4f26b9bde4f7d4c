"""What a test of a service looks like: two workers in one process, on one tally, without a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.running import OPERATOR
from examples.support_service.service import create_app
from fastapi.testclient import TestClient

from tallystick import Actor, Tally

STAFF = {"Authorization": "Bearer staff-sue"}


def as_user(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[TestClient]]:
    folder = str(tmp_path / "tally")
    with Tally.open(folder, owner=OPERATOR, background=False):
        pass
    with TestClient(create_app(folder)) as one, TestClient(create_app(folder)) as other:
        yield [one, other]


def say(worker: TestClient, user: str, thread: str, text: str) -> str:
    answer = worker.post(f"/chats/{thread}", json={"text": text}, headers=as_user(user))
    assert answer.status_code == 200
    return str(answer.json()["answer"])


def test_each_customer_is_known_to_every_worker_by_their_own_order_alone(
    workers: list[TestClient], tmp_path: Path
) -> None:
    orders = {f"customer-{number}": 100 + number for number in range(20)}
    for number, (user, order) in enumerate(orders.items()):
        say(workers[number % 2], user, "complaint", f"My order {order} is broken.")

    for number, (user, order) in enumerate(orders.items()):
        answer = say(workers[1 - number % 2], user, "question", "Which order is mine?")
        assert answer == f"You told me of order {order}."

    with Tally.open(tmp_path / "tally", create=False, background=False) as tally:
        mine = tally.bind(Actor(user="customer-3"))
        assert [memory.content for memory in mine.memories()] == [
            "Which order is mine?",
            "My order 103 is broken.",
        ]
        assert all(mine.recordings.verify(run.id).ok for run in mine.recordings.runs())


@pytest.mark.parametrize(
    ("approve", "answer"),
    [
        (True, "About your refund: refunded order 100."),
        (False, "staff-sue denied it: too late."),
    ],
)
def test_a_refund_asked_for_on_one_worker_is_decided_on_the_other(
    workers: list[TestClient], approve: bool, answer: str
) -> None:
    one, other = workers
    asked = say(one, "customer-0", "refund", "Please refund order 100.")
    assert asked == "A colleague looks at it."
    assert one.get("/chats/refund", headers=as_user("customer-0")).json()["waits"] is True

    [waiting] = other.get("/approvals", headers=STAFF).json()
    assert waiting["arguments"] == {"order": 100}
    decided = other.post(
        f"/approvals/{waiting['id']}",
        params={"scope": waiting["scope"]},
        json={"approve": approve, "reason": "too late"},
        headers=STAFF,
    )
    assert decided.status_code == 200

    told = one.get("/chats/refund", headers=as_user("customer-0")).json()
    assert told["waits"] is False
    assert told["answer"].endswith(answer)


def test_a_customer_decides_nothing_and_sees_no_conversation_of_another(
    workers: list[TestClient],
) -> None:
    one, _ = workers
    say(one, "customer-0", "refund", "Please refund order 100.")

    assert one.get("/approvals", headers=as_user("customer-0")).status_code == 403
    assert one.get("/chats/refund", headers=as_user("customer-1")).status_code == 404
