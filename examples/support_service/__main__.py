"""A support desk for twenty customers: two workers on one tally, refunds decided by a person.

Two processes serve the same customers. What was said on one is known on the other, nobody learns of
anybody else's order, and a refund that was asked for on one is decided on the other.

    python -m examples.support_service
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from examples.running import OPERATOR, check_receipts, example_options

from tallystick import Tally

CUSTOMERS = 20
STARTING = 60
"""Seconds that a worker may take to start."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve twenty customers with two workers, and print what each learned."""
    options = example_options(__doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tallystick-", ignore_cleanup_errors=True) as home:
        folder = str(Path(home) / "tally") if options.tally == ":memory:" else options.tally
        with Tally.open(folder, owner=OPERATOR):
            pass  # made once, before the workers open it
        with ExitStack() as stack:
            sockets = [Path(home) / f"{number}.sock" for number in (1, 2)]
            workers = [stack.enter_context(worker(folder, socket)) for socket in sockets]
            serve_customers(workers)
        with Tally.open(folder, create=False) as tally:
            print(check_receipts(tally))


def serve_customers(workers: Sequence[Any]) -> None:
    """Let every customer talk to both workers, and decide about their refunds."""
    one, other = workers
    staff = {"Authorization": "Bearer staff-sue"}
    customers = {f"customer-{number}": 100 + number for number in range(CUSTOMERS)}
    for user, order in customers.items():
        _say(one, user, "complaint", f"My order {order} is broken.")
    knows = [
        _say(other, user, "question", "Which order is mine?")["answer"]
        == f"You told me of order {order}."
        for user, order in customers.items()
    ]
    print(
        f"{sum(knows)} of {CUSTOMERS} customers are known to the other worker, by their own order."
    )

    for number in (0, 1):
        user, order = f"customer-{number}", 100 + number
        answer = _say(one, user, "refund", f"Please refund order {order}.")
        print(f"{user} asks for a refund: {answer['answer']}")
    for waiting in other.get("/approvals", headers=staff).json():
        is_first = waiting["scope"] == "private:customer-0"
        other.post(
            f"/approvals/{waiting['id']}",
            params={"scope": waiting["scope"]},
            json={"approve": is_first, "reason": "broken" if is_first else "too late"},
            headers=staff,
        ).raise_for_status()
    for number in (0, 1):
        user = f"customer-{number}"
        answer = one.get("/chats/refund", headers=_as(user)).json()
        print(f"{user} asks again: {answer['answer']}")
    refused = one.get("/approvals", headers=_as("customer-0"))
    print(f"customer-0 asks what waits for a decision: {refused.json()['detail']}")


@contextmanager
def worker(folder: str, socket: Path) -> Iterator[httpx2.Client]:
    """Run a worker process of the service, and yield a client of it."""
    factory = "examples.support_service.service:app_of_worker"
    options = ("--factory", factory, "--uds", str(socket), "--log-level", "error")
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", *options],
        env={**os.environ, "SUPPORT_TALLY": folder},
    )
    try:
        with httpx2.Client(
            transport=httpx2.HTTPTransport(uds=str(socket)), base_url="http://desk", timeout=60
        ) as client:
            _wait_for(socket, process)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=STARTING)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTING
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit("A worker did not start.")
        time.sleep(0.05)


def _say(client: Any, user: str, thread: str, text: str) -> Any:
    answer = client.post(f"/chats/{thread}", json={"text": text}, headers=_as(user))
    answer.raise_for_status()
    return answer.json()


def _as(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {user}"}


if __name__ == "__main__":
    main()
