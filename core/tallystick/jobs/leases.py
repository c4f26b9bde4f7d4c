"""Leases: who holds a job, by machine, process and thread, and which jobs nobody holds any more."""

from __future__ import annotations

import os
import socket
import threading
import uuid

from tallystick.storage import Connection
from tallystick.storage.rows import jobs, measures
from tallystick.storage.rows.measures import Leased

_PROCESS = uuid.uuid4().hex[:6]


def worker_name() -> str:
    """Return who leases: the machine, the process and the thread."""
    return f"{socket.gethostname()}:{os.getpid()}-{_PROCESS}:{threading.get_ident() % 10_000}"


def leaked(connection: Connection) -> list[str]:
    """Return the jobs whose lease ran out, or whose process is gone from this machine."""
    now, held = measures.leases(connection)
    return [each.id for each in held if each.due_at <= now or _is_gone(each)]


def release(tx: Connection, job_id: str | None) -> list[str]:
    """Let a leased job be leased anew, or those that nobody holds; return their ids."""
    if job_id is None:
        ids = leaked(tx)
    else:
        ids = [each.id for each in measures.leases(tx)[1] if each.id == job_id]
    return jobs.requeue(tx, ids, under_way=True) if ids else []


def _is_gone(lease: Leased) -> bool:
    host, _, rest = lease.worker.partition(":")
    process = rest.partition("-")[0]
    if host != socket.gethostname() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
