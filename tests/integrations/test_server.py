"""The HTTP sidecar: every operation under its path, one shape of answers and errors, and a guard
that lets in nobody whom the tally does not know.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from fastapi import FastAPI

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick.operations import OPERATIONS
from tallystick.recorder import verify_bundle
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick_hooks.command import run as run_hook
from tallystick_server import RemoteTally, create_app, openapi, serve, serve_in_background
from tallystick_server.guard import BODY_LIMIT, COOKIE, bind_port, bind_socket, limit_body
from tallystick_server.routes import EXCLUDED, OWN, PREFIX, ROUTES

from .served import ADA, ASKING, BOB, ROOT, Served, problem, served


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), rules=[ASKING]) as there:
        yield there


def test_every_operation_has_a_route_or_a_reason() -> None:
    offered = [route.operation for route in ROUTES]

    assert len(set(offered)) == len(offered)
    assert {*offered, *EXCLUDED} == set(OPERATIONS)
    assert not set(offered) & set(EXCLUDED)
    for route in ROUTES:
        arguments = OPERATIONS[route.operation].arguments.model_fields
        assert {*route.fixed, *route.absent} <= set(arguments)
        assert all([*route.absent.values(), *EXCLUDED.values(), *OWN.values()])


def test_the_description_has_each_route_with_its_operation_and_words() -> None:
    described = openapi()
    paths = {
        f"{method.upper()} {path.removeprefix(PREFIX)}"
        for path, methods in described["paths"].items()
        for method in methods
    }
    of_operations = {
        f"{method} {path.replace(':path', '')}"
        for route in ROUTES
        for method, path in [(route.method, route.path)]
    }

    entries = [entry for methods in described["paths"].values() for entry in methods.values()]
    names = [entry["operationId"] for entry in entries]

    assert paths == of_operations | set(OWN)
    assert len(names) == len(set(names))
    assert {route.operation for route in ROUTES} <= set(names)
    assert all(entry["summary"] and entry["description"] and entry["tags"] for entry in entries)
    assert json.loads(json.dumps(described)) == described


def test_an_answer_says_as_whom_and_where_it_was_done(there: Served) -> None:
    http = there.http(there.token())
    stored = http.post("/v1/memories", json={"content": "Ada keeps bees."}).json()
    token = {"content": "My token is ghp_a8Kd02JdLs93Mf7QpXz41VbNcTgHyUeWo6Ri"}
    masked = http.post("/v1/memories", json=token).json()["result"]
    apollo = http.get("/v1/memories", headers={"tallystick-scope": "project:apollo"}).json()

    assert stored["actor"] == {"user": "ada", "role": "member"}
    assert (stored["schema_version"], stored["scope"]) == (1, "private:ada")
    assert apollo["scope"] == "project:apollo"
    assert "1 github_token" in masked["warnings"][0]
    found = there.tally.bind(ADA).get(stored["result"]["id"])
    assert (found.content, found.created_by) == ("Ada keeps bees.", "ada")


def test_history_names_the_token_that_a_change_came_with(there: Served) -> None:
    secret = there.token()
    stored = there.http(secret).post("/v1/memories", json={"content": "Once."}).json()["result"]
    [entry] = there.tally.bind(ADA).history(stored["id"])

    assert (entry.surface, entry.session_id) == ("http", there.tally.authenticate(secret).id)


def test_a_list_is_read_page_by_page(there: Served) -> None:
    carol = Actor(user="carol")
    for number in range(5):
        there.tally.bind(carol).remember(f"Note {number}.")
    http = there.http(there.token(carol))
    ids: list[str] = []
    before: str | None = None
    while True:
        query = {"limit": "2", **({} if before is None else {"before": before})}
        page = http.get("/v1/memories", params=query).json()
        ids += [memory["id"] for memory in page["result"]]
        before = page["next"]
        if before is None:
            break

    assert len(ids) == len(set(ids)) == 5


def test_runs_and_jobs_are_read_page_by_page_too(there: Served) -> None:
    dora = Actor(user="dora")
    bound = there.tally.bind(dora)
    runs = []
    for number in range(3):
        with bound.run(f"agent {number}") as run:
            runs.append(run.id)
    token = there.token(dora)
    http = there.http(token)
    first = http.get("/v1/runs", params={"limit": "2"}).json()
    second = http.get("/v1/runs", params={"limit": "2", "before": first["next"]}).json()
    for route in ("runs", "jobs", "approvals"):
        unknown = http.get(f"/v1/{route}", params={"before": "nothing-at-all"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    with RemoteTally.connect(there.tcp, token=token) as remote:
        rest = remote.recordings.runs(before=runs[2])

    assert [run["id"] for run in [*first["result"], *second["result"]]] == runs[::-1]
    assert (first["next"], second["next"]) == (runs[1], None)
    assert [run.id for run in rest] == runs[:2][::-1]


def test_a_change_holds_only_for_the_version_that_was_read(there: Served) -> None:
    http = there.http(there.token())
    memory_id = http.post("/v1/memories", json={"content": "Tea."}).json()["result"]["id"]
    path = f"/v1/memories/{memory_id}"
    etag = http.get(path).headers["etag"]
    body = {"reason": "asked", "changes": {"content": "Coffee."}}

    first = http.patch(path, json=body, headers={"if-match": etag})
    second = http.patch(path, json=body, headers={"if-match": etag})

    assert (first.status_code, first.headers["etag"]) == (200, '"2"')
    assert (second.status_code, problem(second)["code"]) == (409, "version_conflict")
    assert problem(second)["facts"]["actual"] == 2
    refused = http.patch(path, json=body, headers={"if-match": "*"})
    assert (refused.status_code, problem(refused)["code"]) == (422, "invalid_input")


def test_a_request_with_the_same_key_is_done_once(there: Served) -> None:
    http = there.http(there.token())
    headers = {"idempotency-key": "request-1"}
    first = http.post("/v1/memories", json={"content": "Keyed."}, headers=headers)
    again = http.post("/v1/memories", json={"content": "Keyed."}, headers=headers)
    other = http.post("/v1/memories", json={"content": "Other."}, headers=headers)

    assert first.json() == again.json()
    assert (other.status_code, problem(other)["code"]) == (422, "idempotency_mismatch")


def test_a_header_that_would_change_nothing_is_refused(there: Served) -> None:
    http = there.http(there.token())
    for headers in ({"if-match": '"1"'}, {"idempotency-key": "k"}):
        refused = http.post("/v1/recall", json={"query": "x"}, headers=headers)
        assert (refused.status_code, problem(refused)["code"]) == (422, "invalid_input")


def test_a_malformed_request_names_its_fields_and_echoes_no_value(there: Served) -> None:
    http = there.http(there.token())
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    for response in (
        http.post("/v1/memories", json={"content": {"key": secret}}),
        http.post("/v1/memories", json={"content": "x", secret: 1}),
        http.post("/v1/recall", json={"query": "x", "limit": secret}),
        http.get("/v1/memories", params={"limit": secret}),
        http.post(
            "/v1/memories",
            content=f'{{"content": "{secret}'.encode(),
            headers={"content-type": "application/json"},
        ),
        http.post("/v1/memories", content=secret.encode(), headers={"content-type": "text/plain"}),
    ):
        codes = ("invalid_input", "invalid_record", "unsupported_media_type")
        assert problem(response)["code"] in codes, response.text
        if secret in response.text:
            assert "Extra inputs" in response.text  # the name of a field, which is no value


ROUTED = [
    (route, method, path)
    for route in ROUTES
    for method, path in ((route.method, route.path), *route.also)
]


def test_no_route_lets_anybody_in_without_a_token(there: Served) -> None:
    paths = [f"{method} {path}" for _, method, path in ROUTED]
    for headers in (
        {},
        {"authorization": "Bearer tally_" + "x" * 43},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"authorization": there.token()},
        {"cookie": f"{COOKIE}={there.token()}"},
    ):
        http = there.http(None, **headers)
        for each in [*paths, *OWN, "GET /openapi.json", "GET /nothing"]:
            method, _, path = each.partition(" ")
            response = http.request(method, PREFIX + path)
            assert (response.status_code, problem(response)["code"]) == (401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"


HOSTILE: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"{",
    b"\xff\xfe",
    b'{"a": NaN}',
    b"[" * 5_000,
    b'{"reason": "\\ud800", "content": "\\ud800", "query": "\\ud800", "text": "\\u0000"}',
]


def test_no_route_fails_on_a_hostile_body_or_path(there: Served) -> None:
    http = there.http(there.token(), **{"content-type": "application/json"})
    for number, route in enumerate(ROUTES):
        url = PREFIX + route.path.replace(":path", "").replace("{", "").replace("}", "")
        names = OPERATIONS[route.operation].arguments.model_fields
        bodies = [HOSTILE[(number + step) % len(HOSTILE)] for step in (0, 3)]
        wrong = json.dumps({name: {"x": [1]} for name in names}).encode()
        has_body = route.method not in ("GET", "DELETE")
        requests = [(url, body) for body in ([*bodies, wrong] if has_body else [b""])]
        strange = ("%00", "..%2f..%2fetc%2fpasswd", "%F0%9F%90%9D", "a" * 3_000, "%ud800")
        odd = strange[number % 3 : number % 3 + 2]
        requests += [(url.replace("_id", "_id" + each), b"{}") for each in odd if "_id" in url]
        for target, body in requests:
            response = http.request(route.method, target, content=body)
            assert response.status_code < 500, (target, body[:40], response.text)
            if response.status_code >= 300:
                problem(response)


def test_pages_of_other_sites_get_nothing(there: Served) -> None:
    token = there.token(ROOT, token_class="session")
    http = there.http(token)
    for headers, status in (
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1]evil"}, 421),
        ({"host": "[::1]:80:80"}, 421),
        ({"host": "localhost:evil"}, 421),
        ({"host": "localhost@evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ):
        refused = http.get("/v1/whoami", headers=headers)
        assert (refused.status_code, problem(refused)["status"]) == (status, status)
        assert not [name for name in refused.headers if name.startswith("access-control")]
    for host in ("[::1]", "[::1]:8765", "LOCALHOST:1"):
        assert http.get("/v1/whoami", headers={"host": host}).status_code == 200
    own = http.get("/v1/whoami", headers={"origin": there.tcp})
    preflight = http.options("/v1/whoami", headers={"access-control-request-method": "GET"})

    assert own.status_code == 200
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_a_cookie_counts_for_pages_of_this_origin_alone(there: Served) -> None:
    cookie = f"{COOKIE}={there.token(ROOT, token_class='session')}"
    allowed = {("GET", "same-origin"), ("POST", "same-origin"), ("GET", "none")}
    for method in ("GET", "POST"):
        for site in ("same-origin", "same-site", "cross-site", "none", None):
            headers = {"cookie": cookie} | ({} if site is None else {"sec-fetch-site": site})
            path = "/v1/whoami" if method == "GET" else "/v1/context/wake"
            response = there.http(None, **headers).request(
                method, path, json=None if method == "GET" else {}
            )
            wanted = 200 if (method, site) in allowed else 401
            assert response.status_code == wanted, (method, site)


def test_a_path_that_ends_with_preview_changes_nothing(there: Served) -> None:
    http = there.http(there.token())
    stored = there.tally.bind(Actor(user="ada")).remember("The heron nests in March.")
    wanted = {"memory_id": stored.id, "correction": "delete", "reason": "r"}
    shown = http.post("/v1/memory/corrections/preview", json=wanted)
    assert shown.status_code == 200
    token = shown.json()["result"]["confirm_token"]
    assert token
    sent = {**wanted, "mode": "apply", "confirm_token": token}
    refused = http.post("/v1/memory/corrections/preview", json=sent)
    assert refused.status_code == 422
    assert there.tally.bind(Actor(user="ada")).get(stored.id).state == "active"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/runs", {"agent_name": "a"}),
        ("POST", "/v1/tools/memory_store", {"content": "The heron nests."}),
        ("POST", "/v1/context/compile", {"items": [], "budget": 10}),
        ("POST", "/v1/hooks/prompt", {"payload": {"session": "s", "prompt": "x"}}),
        ("POST", "/v1/items/get", {"keys": []}),
        ("GET", "/v1/health", None),
    ],
)
def test_the_routes_of_the_server_itself_refuse_headers_that_they_do_not_hear(
    there: Served, method: str, path: str, body: Any
) -> None:
    http = there.http(there.token())
    headers = {"Idempotency-Key": "k", "If-Match": '"3"'}
    if "hooks" in path:
        headers["Tallystick-Scope"] = "private:ada"
    for name, value in headers.items():
        refused = http.request(method, path, json=body, headers={name: value})
        assert (refused.status_code, problem(refused)["code"]) == (422, "invalid_input")
        assert name in problem(refused)["detail"]


def test_a_request_that_is_too_large_is_cut_off(there: Served) -> None:
    http = there.http(there.token())
    host, _, port = there.tcp.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as raw:
        head = f"POST /v1/memories HTTP/1.1\r\nHost: {host}\r\nContent-Length: {BODY_LIMIT + 1}"
        raw.sendall(f"{head}\r\nAuthorization: Bearer {there.token()}\r\n\r\n".encode())
        told = raw.makefile("rb").read()

    def endless() -> Iterator[bytes]:
        for _ in range(BODY_LIMIT // 65_536 + 2):
            yield b"x" * 65_536

    streamed = http.post("/v1/memories", content=endless())

    assert told.startswith(b"HTTP/1.1 413")
    assert b'"code":"too_large"' in told
    assert streamed.status_code == 413
    assert problem(streamed)["code"] == "too_large"
    deep = http.post(
        "/v1/memories",
        content='{"content":' + "[" * 100_000,
        headers={"content-type": "application/json"},
    )
    assert (deep.status_code, problem(deep)["code"]) == (422, "invalid_input")


def test_a_body_is_refused_by_its_length_before_it_is_read(there: Served) -> None:
    """64 kB to sign in, 8 MB where texts, payloads or many of something are sent, else 1 MB."""
    http = there.http(there.token(), **{"content-type": "application/json"})
    kilobyte = 1_024
    for path, most in (
        ("/ui/sign-in", 64 * kilobyte),
        ("/v1/recall", 1_024 * kilobyte),
        ("/v1/spaces/team:red/members", 1_024 * kilobyte),
        ("/v1/memories", BODY_LIMIT),
        ("/v1/memories/x/corrections", BODY_LIMIT),
        ("/v1/runs/x/steps", BODY_LIMIT),
    ):
        within, beyond = (http.post(path, content=b" " * size) for size in (most, most + 1))
        assert within.status_code in (401, 422), path
        assert beyond.status_code == 413, path
        assert f"{most:,} bytes" in problem(beyond)["detail"]


def test_a_body_of_junk_costs_little_and_is_explained_in_short(there: Served) -> None:
    """The processor time for a body of junk, and not the clock: others wait for it."""
    http = there.http(there.token(), **{"content-type": "application/json"})

    def told(path: str, content: bytes) -> tuple[str, float]:
        began = time.process_time()
        answer = http.post(path, content=content)
        spent = time.process_time() - began
        assert answer.status_code == 422
        return cast(str, problem(answer)["detail"]), spent

    empty = b",".join([b"{}"] * 400_000)
    unknown = b",".join(b'"k%d":0' % number for number in range(400_000))
    cases = [
        told("/v1/context/compile", b'{"budget":1,"items":[%s]}' % empty),
        told("/v1/memories/batch", b'{"items":[%s]}' % empty),
        told("/v1/memories", b"{%s}" % unknown),
        told("/v1/policy/check", b'{"kind":"tool_call","arguments":[%s]}' % empty * 2),
        told("/v1/policy/check", b"[" * 4_000_000),
    ]
    plain, _ = told("/v1/recall", b"{%s}" % b",".join(b'"k%d":0' % n for n in range(30)))

    assert max(spent for _, spent in cases) < 5
    assert all(len(detail) < 2_000 for detail, _ in cases)
    assert (plain.count("Extra inputs"), plain[-12:]) == (19, "and 11 more.")


async def test_a_body_that_drips_is_cut_off_when_its_time_is_over(
    there: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_server.guard._BODY_SECONDS", 0.2)
    received = 0

    async def drip() -> dict[str, Any]:
        nonlocal received
        received += 1
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    receive = limit_body(drip, BODY_LIMIT, lambda: None)

    async def read() -> None:
        for _ in range(100):
            await receive()

    with pytest.raises(TimeoutError):
        await read()
    assert 0 < received < 100


def test_who_opens_the_socket_is_the_owner_and_no_person(there: Served) -> None:
    http = there.socket()
    who = http.get("/v1/whoami").json()["result"]
    granted = http.post("/v1/approvals/x/approve", json={"reason": "r"})
    made = http.post("/v1/tokens", json={"name": "more"})

    assert (who["user"], who["role"], who["token_class"]) == ("root", "operator", None)
    assert (granted.status_code, problem(granted)["facts"]["reason"]) == (403, "person_required")
    assert (made.status_code, problem(made)["facts"]["reason"]) == (403, "person_required")


def test_a_session_of_a_person_grants_and_a_token_of_the_same_person_does_not(
    there: Served,
) -> None:
    ada = there.http(there.token())
    blocked = ada.post("/v1/policy/check", json={"kind": "tool_call", "name": "deploy"})
    assert (blocked.status_code, problem(blocked)["code"]) == (403, "approval_required")
    [asked] = problem(blocked)["facts"]["approvals"]
    path = f"/v1/approvals/{asked['id']}/approve"

    refused = ada.post(path, json={"reason": "mine"})
    session = there.http(there.token(ADA, token_class="session"))
    granted = session.post(path, json={"reason": "Looked at it."})
    passed = ada.post("/v1/policy/check", json={"kind": "tool_call", "name": "deploy"})

    assert problem(refused)["facts"]["reason"] == "person_required"
    assert granted.json()["result"]["state"] == "granted"
    assert passed.json()["result"]["rule_id"] == "ask"


def test_a_token_for_one_scope_works_there_without_naming_it(there: Served) -> None:
    scoped = there.http(there.token(token_class="scoped", scopes=["project:apollo"]))
    stored = scoped.post("/v1/memories", json={"content": "For the project."}).json()
    elsewhere = scoped.get("/v1/memories", headers={"tallystick-scope": "private:ada"})

    assert stored["scope"] == "project:apollo"
    assert problem(elsewhere)["facts"]["reason"] == "outside_credential"


def test_a_run_is_recorded_step_by_step_and_its_bundle_verifies(there: Served) -> None:
    http = there.http(there.token())
    run_id = http.post("/v1/runs/start", json={"agent_name": "coder", "goal": "Mend it."}).json()[
        "result"
    ]["id"]
    in_run = {"tallystick-run": run_id}
    http.post("/v1/recall", json={"query": "bees"}, headers=in_run)
    step = {
        "kind": "model_call",
        "entries": [
            {"kind": "request", "payload": {"prompt": "Mend it."}},
            {"kind": "response", "payload": {"text": "Done."}},
        ],
    }
    receipt = http.post(f"/v1/runs/{run_id}/steps", json=step).json()["result"]
    call = {"run_id": run_id, "name": "ls", "arguments": {}, "result": "a b"}
    http.post("/v1/tools/result", json=call)
    stranger = there.http(there.token(BOB)).post(f"/v1/runs/{run_id}/steps", json=step)
    foil = http.post(f"/v1/runs/{run_id}/end", json={}).json()["result"]
    late = http.post(f"/v1/runs/{run_id}/steps", json=step)

    kinds = [each["step_kind"] for each in http.get(f"/v1/runs/{run_id}/steps").json()["result"]]
    assert kinds == ["memory_read", "model_call", "tool_call"]
    assert receipt["run_id"] == run_id
    assert (stranger.status_code, problem(stranger)["code"]) == (404, "not_found")
    assert (late.status_code, problem(late)["code"]) == (409, "run_closed")
    assert http.post(f"/v1/runs/{run_id}/verify", json={"foil": foil}).json()["result"]["ok"]
    bundle = http.get(f"/v1/runs/{run_id}/bundle")
    assert verify_bundle(bundle.content).ok
    unknown = http.post("/v1/recall", json={"query": "x"}, headers={"tallystick-run": "nope"})
    assert problem(unknown)["code"] == "not_found"


def test_a_compile_decides_over_what_the_caller_sends(there: Served) -> None:
    http = there.http(there.token())
    items = [
        {"id": "1", "kind": "user_msg", "content": "Where do herons nest?", "tags": ["hard"]},
        {"id": "2", "kind": "file", "content": "Herons nest in tall trees near water."},
    ]
    answered = http.post("/v1/context/compile", json={"items": items, "budget": 500}).json()
    direct = there.tally.bind(ADA).compile([], budget=500)

    assert {each["item_id"] for each in answered["result"]["decisions"]} == {"1", "2"}
    assert set(direct.dump()) == set(answered["result"])


def _events(response: httpx2.Response, most: int) -> list[tuple[str | None, Any]]:
    events: list[tuple[str | None, Any]] = []
    identity: str | None = None
    for line in response.iter_lines():
        if line.startswith("id: "):
            identity = line[4:]
        elif line.startswith("data: "):
            events.append((identity, json.loads(line[6:])))
            if len(events) == most:
                break
    return events


def test_a_reader_follows_a_run_to_its_end_and_goes_on_where_it_stopped(there: Served) -> None:
    ada = there.tally.bind(ADA)
    http = there.http(there.token())
    run = ada.run("coder")
    with run.step("tool_call", name="first"):
        pass
    path = f"/v1/runs/{run.id}/events"
    with http.stream("GET", path) as response:
        first = _events(response, 1)

    def rest() -> None:
        with run.step("tool_call", name="second"):
            pass
        run.end()

    thread = threading.Thread(target=rest)
    thread.start()
    beyond = http.get(path, headers={"last-event-id": "999999"})
    assert (beyond.status_code, problem(beyond)["code"]) == (422, "invalid_input")
    with http.stream("GET", path, headers={"last-event-id": str(first[0][0])}) as response:
        events = [event for _, event in _events(response, 99)]
    thread.join()

    assert [event["step"]["name"] for _, event in first] == ["first"]
    ended = [event for event in events if event["type"] == "step" and event["step"]["ended_at"]]
    assert [event["step"]["name"] for event in ended] == ["second"]
    assert events[-1]["type"] == "run"
    hidden = there.http(there.token(BOB)).get(path)
    assert (hidden.status_code, problem(hidden)["code"]) == (404, "not_found")


def test_a_reader_whose_token_is_revoked_is_sent_away(there: Served) -> None:
    made = there.tally.bind(ROOT).tokens.make("reader", actor=ADA)
    run = there.tally.bind(ADA).run("coder")
    with there.http(made.secret).stream("GET", f"/v1/runs/{run.id}/events") as response:
        there.tally.bind(ROOT).tokens.revoke(made.id, reason="lost")
        events = [event for _, event in _events(response, 99)]
    run.end()

    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "unauthenticated"


def test_a_hundred_readers_cost_no_thread_each(there: Served) -> None:
    run = there.tally.bind(ADA).run("coder")
    url, headers = (
        f"{there.tcp}/v1/runs/{run.id}/events",
        {"authorization": f"Bearer {there.token()}"},
    )

    async def read(client: httpx2.AsyncClient, opened: list[int]) -> str:
        async with client.stream("GET", url, headers=headers) as response:
            opened.append(1)
            return (await response.aread()).decode()

    async def all_of_them() -> tuple[list[str], int]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(trust_env=False, timeout=120, limits=limits) as client:
            opened: list[int] = []
            tasks = [asyncio.create_task(read(client, opened)) for _ in range(100)]
            while len(opened) < 100:
                await asyncio.sleep(0.05)
            most = threading.active_count()
            await asyncio.to_thread(run.end)
            return await asyncio.gather(*tasks), most

    before = threading.active_count()
    texts, most = asyncio.run(all_of_them())

    assert most - before <= 40
    assert all('"type":"run"' in text for text in texts)


def test_a_job_is_followed_to_its_end(there: Served) -> None:
    ada = there.tally.bind(ADA)
    with ada.run("coder") as run, run.step("model_call") as step:
        ada.compile([*ada.recall("bees")], budget=300)
        step.record("request", {"prompt": "x"})
    http = there.http(there.token())
    later = http.post(f"/v1/steps/{step.id}/replay", json={})
    job_id = later.json()["result"]["id"]
    with http.stream("GET", f"/v1/jobs/{job_id}/events") as response:
        there.tally.drain()
        events = [event for _, event in _events(response, 99)]

    assert later.status_code == 202
    assert events[-1]["job"]["state"] in ("done", "failed", "empty")


def test_the_socket_is_the_owners_alone_and_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Tally.open(":memory:", embedder=HashEmbedder()) as tally:
        with serve_in_background(tally, uds=path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(InvalidInput, match="answers at"):
                serve(tally, uds=path)
        assert not path.exists()


def test_a_socket_that_was_left_behind_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with bind_socket(path) as bound:
        assert bound.getsockname() == str(path)
    path.write_text("a file")
    with pytest.raises(InvalidInput, match="no socket"), bind_socket(path):
        pass
    assert path.read_text() == "a file"
    with pytest.raises(InvalidInput, match="bytes at most"), bind_socket(tmp_path / ("x" * 120)):
        pass
    with pytest.raises(InvalidInput, match="no folder"), bind_socket(tmp_path / "no" / "s"):
        pass


def test_another_who_took_the_path_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bind_socket(path):
        os.replace(path, tmp_path / "moved")
        path.write_text("of another")
    assert path.read_text() == "of another"


def test_a_path_a_method_or_a_type_that_is_not_taken_is_a_problem_that_says_what_is(
    there: Served,
) -> None:
    http = there.http(there.token())
    unknown = http.get("/v1/herons")
    wrong = http.put("/v1/memories", json={})
    texts = [
        http.post("/v1/memories", content=b'{"content": "x"}', headers=headers)
        for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/xml"})
    ]
    none = http.post("/v1/memories")
    list_ = http.post("/v1/memories", json=["x"])
    of_json = {"content-type": "application/vnd.api+json; charset=utf-8"}
    taken = http.post("/v1/memories", content=b'{"content": "Bees."}', headers=of_json)

    answers = [unknown, wrong, *texts, none, list_]
    assert [(answer.status_code, problem(answer)["code"]) for answer in answers] == [
        (404, "not_found"),
        (405, "method_not_allowed"),
        *[(415, "unsupported_media_type")] * 3,
        *[(422, "invalid_input")] * 2,
    ]
    assert wrong.headers["allow"] == "GET, POST"
    assert none.json()["detail"] == "body: Field required."
    assert taken.status_code == 200


def test_what_is_wrong_in_a_body_is_named_with_its_field_or_its_place(there: Served) -> None:
    http = there.http(there.token(), **{"content-type": "application/json"})
    broken = http.post("/v1/remember", content=b'{"content": "Bees.",\n "kind": }')
    absent = http.post("/v1/remember", json={"kind": "fact"})
    surplus = http.post("/v1/remember", json={"content": "Bees.", "kindd": "fact"})
    long = http.post("/v1/remember", json={"content": "Bees. " * 1_000, "kindd": "fact"})

    unsaid = http.delete("/v1/memories/x")

    assert problem(broken)["detail"].endswith("line 2, column 10.")
    assert problem(unsaid)["detail"] == 'reason: Field required: say why, as in reason="…".'
    assert problem(unsaid)["facts"] == {"argument": "reason"}
    assert problem(absent)["facts"] == {"argument": "content"}
    assert problem(surplus)["facts"] == problem(long)["facts"] == {"argument": "kindd"}


async def test_a_caller_beyond_a_limit_learns_when_to_try_again(tmp_path: Path) -> None:
    limits = Settings.read(rate_limits={"read": 2})
    with Tally.open(tmp_path / "t", owner=ROOT, settings=limits, background=False) as tally:
        transport = httpx2.ASGITransport(app=create_app(tally, local=ROOT))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = [await client.get("/v1/memories") for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert problem(answers[2])["code"] == "rate_limited"
    assert answers[2].headers["retry-after"] == str(problem(answers[2])["facts"]["retry_after"])


async def test_the_routes_are_built_once_by_whoever_needs_one_first_and_by_no_probe_or_page(
    tmp_path: Path,
) -> None:
    paths = ["/v1/whoami", "/v1/spaces", "/v1/memories", "/v1/runs", "/v1/jobs", "/v1/health"]
    with Tally.open(tmp_path / "t", owner=ROOT, embedder=HashEmbedder()) as tally:
        server = create_app(tally, local=ROOT)
        app = cast(FastAPI, server.application)
        transport = httpx2.ASGITransport(app=server)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("/v1/health", "/v1/ready", "/v1/openapi.json", "/ui/overview"):
                assert (await client.get(path)).status_code == 200, path
            wrong = await client.post("/v1/health")
            before = len(app.router.routes)
            answers = await asyncio.gather(*(client.get(path) for path in 5 * paths))
            unknown = await client.get("/v1/unknown")
            after = len(app.router.routes)

    assert wrong.status_code == 405
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert unknown.status_code == 404
    assert before < after == len(app.routes)


def test_whoever_looks_at_the_routes_of_an_application_has_them_all(there: Served) -> None:
    app = cast(FastAPI, create_app(there.tally).application)
    first = len(app.router.routes)

    assert len(app.routes) > first
    assert app.openapi() == openapi()


async def test_the_application_is_mounted_in_another_which_enters_its_lifespan(
    tmp_path: Path,
) -> None:
    with Tally.open(tmp_path / "t", owner=ROOT, embedder=HashEmbedder()) as tally:
        secret = tally.bind(ROOT).tokens.make("host").secret
        inner = create_app(tally, hosts=["app.example"])

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            async with inner.lifespan():
                yield

        host = FastAPI(lifespan=lifespan)
        host.mount("/memory", inner)
        headers = {"authorization": f"Bearer {secret}"}
        transport = httpx2.ASGITransport(app=host)
        async with (
            host.router.lifespan_context(host),
            httpx2.AsyncClient(transport=transport, base_url="http://app.example") as client,
        ):
            who = await client.get("/memory/v1/whoami", headers=headers)
            started = await client.post(
                "/memory/v1/runs", json={"agent_name": "a"}, headers=headers
            )
            refused = await client.get("/memory/v1/whoami")
        run = tally.bind(ROOT).recordings.run(started.json()["result"]["id"])

    assert who.json()["result"]["user"] == "root"
    assert refused.status_code == 401
    assert run.status == "interrupted"


def test_a_read_leaves_the_journal_as_it_was(there: Served) -> None:
    ada = there.tally.bind(ADA)
    memory_id = ada.remember("Read me.").id
    with ada.run("coder") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "x"})

    def entries() -> int:
        with services_of(there.tally).store.database.read() as connection:
            return len(list(journal.all_entries(connection)))

    http = there.http(there.token())
    given = {
        "memory_id": memory_id,
        "run_id": run.id,
        "step_id": step.id,
        "before": step.id,
        "after": step.id,
        "scope:path": "project:apollo",
    }
    before = entries()
    for route in ROUTES:
        if route.method == "GET":
            path = route.path
            for name, value in given.items():
                path = path.replace(f"{{{name}}}", value)
            # What is of the whole tally is for operators, and a refusal is journaled.
            of_the_tally = ("sizes", "health", "health_scores", "alerts", "metrics")
            if "{" not in path and route.operation not in of_the_tally:
                asked = {"trace": {"text": "x"}, "working": {"thread": "t"}}
                response = http.get(PREFIX + path, params=asked.get(path.split("/")[-1], {}))
                assert response.status_code in (200, 404, 409), (path, response.text)

    assert entries() == before


def test_an_answer_names_its_request_as_the_log_and_the_history_do(
    there: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tallystick.policy")
    reader = there.http(there.token(token_class="scoped", operations=["read"]))
    body = {"content": "The crane rests on a request."}
    refused = reader.post("/v1/memories", json=body, headers={"x-request-id": "req-7"})
    unnamed = reader.post("/v1/memories", json=body)
    for bad in ("a b", "x" * 129):
        answer = reader.get("/v1/whoami", headers={"x-request-id": bad})
        assert (answer.status_code, problem(answer)["code"]) == (400, "malformed")
        assert answer.headers["x-request-id"] != bad
    kept = there.http(there.token()).post(
        "/v1/memories", json=body, headers={"x-request-id": "req-8"}
    )
    memory_id = kept.json()["result"]["id"]
    [change] = there.http(there.token()).get(f"/v1/memories/{memory_id}/history").json()["result"]

    assert (refused.headers["x-request-id"], kept.headers["x-request-id"]) == ("req-7", "req-8")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    for line, answer in zip(lines, (refused, unnamed), strict=True):
        assert f"request_id='{answer.headers['x-request-id']}'" in line
        for fact in ("principal='ada'", "scope_kind='private'", "reason='outside_credential'"):
            assert fact in line
    assert change["request_id"] == "req-8"


def test_a_token_that_may_not_write_renews_no_time_to_live(there: Served) -> None:
    writer = there.http(there.token())
    reader = there.http(there.token(token_class="scoped", operations=["read", "inspect"]))
    minute = 60 * 1_000_000
    put = {"namespace": ["kept"], "key": "k", "value": {"a": 1}, "ttl": minute}
    writer.post("/v1/items", json={"puts": [put]})
    get = {"addresses": [[["kept"], "k"]], "refresh": [True]}
    find = {"prefix": ["kept"], "refresh": True}

    def end(http: httpx2.Client) -> int:
        [item] = http.post("/v1/items/get", json={"addresses": get["addresses"]}).json()["result"]
        return cast(int, item["memory"]["expires_at"])

    first = end(reader)
    for path, body in (("get", get), ("find", find)):
        assert reader.post(f"/v1/items/{path}", json=body).status_code == 200
    unchanged = end(reader)
    writer.post("/v1/items/get", json=get)

    assert unchanged == first < end(reader)


def test_a_hook_is_answered_by_the_server_of_its_tally(
    there: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    there.tally.bind(ROOT).remember("The staging server is called heron.")
    monkeypatch.setattr(
        sys,
        "stdin",
        io.StringIO('{"session": "s1", "prompt": "What is the staging server called?"}'),
    )
    path = there.unix.removeprefix("unix:")
    code = run_hook(["prompt", "--tally", str(tmp_path / "nowhere"), "--socket", path])
    answer = json.loads(capsys.readouterr().out)

    assert code == 0
    assert "heron" in answer["context"]
    assert (answer["actor"], answer["scope"]) == ("root", "private:root")


def test_a_hook_that_its_server_refuses_says_why(
    there: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"session": 5}'))
    path = there.unix.removeprefix("unix:")
    code = run_hook(["prompt", "--tally", str(tmp_path / "nowhere"), "--socket", path])

    assert code == 0
    assert "The server answered 422: `session` has to be a text." in capsys.readouterr().err


def test_a_hook_over_a_port_reads_no_file_of_the_server(there: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text(
        json.dumps({"type": "user", "message": {"role": "user", "content": "canary-file"}})
    )
    http = there.http(there.token())
    for name in ("Stop", "SessionEnd", "PreCompact", "UserPromptSubmit", "PostToolUse"):
        payload = {
            "hook_event_name": name,
            "session_id": "s9",
            "transcript_path": str(secret),
            "prompt": "Hello?",
            "tool_name": "ls",
        }
        event = {"Stop": "turn-end", "SessionEnd": "session-end", "PreCompact": "before-compact"}
        path = f"/v1/hooks/{event.get(name, 'prompt' if 'Prompt' in name else 'after-tool')}"
        response = http.post(path, json={"payload": payload, "format": "claude-code"})
        assert response.status_code == (422 if name in event else 200), response.text
        assert "canary-file" not in response.text
    kept = [memory.content for memory in there.tally.bind(ADA).memories(limit=1_000)]
    assert not [text for text in kept if "canary-file" in text]
    odd = http.post("/v1/hooks/no-such-event", json={"payload": {"session": "s"}})
    assert (odd.status_code, problem(odd)["code"]) == (422, "invalid_input")


def test_a_hook_neither_learns_nor_notes_anything_in_the_scope_of_another(there: Served) -> None:
    bob = there.tally.bind(BOB)
    with bob.run("coder", metadata={"thread_id": "of-bob"}) as run:
        pass
    asked = {
        "payload": {"session": "of-bob", "tool": "ls", "result": "x"},
        "scope": "private:bob",
    }
    answered = there.http(there.token()).post("/v1/hooks/after-tool", json=asked)
    with services_of(there.tally).store.database.read() as connection:
        noted = [
            entry
            for entry in journal.all_entries(connection)
            if entry.event == "session.seen_again" and entry.stream == "scope:private:bob"
        ]

    assert run.id not in answered.text
    assert noted == []
    assert bob.recordings.runs()[0].id == run.id


def test_an_answer_of_two_writes_does_not_wait_for_an_acknowledgement() -> None:
    async def delayed(bound: socket.socket) -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(accept, sock=bound)
        async with server:
            _, writer = await asyncio.open_connection(*bound.getsockname())
            no_delay = await accepted
            writer.close()
        return no_delay

    with bind_port(0) as bound:
        assert asyncio.run(delayed(bound)) == 1
