"""Policy, approvals and health in the dashboard: a person decides, and sees what needs care."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tallystick import Actor
from tallystick.errors import ActionDenied, ApprovalRequired, Denied
from tallystick.records import Approval, PolicyConditions, PolicyRule

from .dashboard import HOSTILE, Browser, play
from .served import ADA, BOB, ROOT, Served, served

ASKING = PolicyRule(
    id="ask",
    name="Ask before deploys",
    description="A person looks at deploys.",
    effect="require_approval",
    applies_to="tool_call",
    conditions=PolicyConditions(tool=("deploy",)),
)
DENYING = PolicyRule(
    id="never",
    name="Never drop",
    effect="deny",
    applies_to="tool_call",
    conditions=PolicyConditions(tool=("drop",)),
)
AGENT = ADA.replace(agent="deployer")


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("governance"), rules=[ASKING, DENYING]) as there:
        yield there


@pytest.fixture(scope="module")
def ada(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ADA, token_class="session")) as browser:
        yield browser


@pytest.fixture(scope="module")
def root(there: Served) -> Iterator[Browser]:
    with Browser(there.tcp, there.token(ROOT, token_class="session")) as browser:
        yield browser


def blocked(there: Served, arguments: Any) -> Approval:
    with pytest.raises(ApprovalRequired):
        there.tally.bind(AGENT).check_tool_call("deploy", arguments)
    return there.tally.bind(ADA).approvals.list()[0]


def test_an_approval_is_granted_for_exactly_its_arguments(there: Served, ada: Browser) -> None:
    waiting = blocked(there, {"to": "production", "note": HOSTILE})
    blocked(there, {"to": "staging"})
    listed = ada.get("approvals")
    page = ada.get(next(link for link in listed.links if waiting.id in link))
    decided = ada.send(page.form(f"/{waiting.id}"), reason="checked", decision="approve")
    bound = there.tally.bind(AGENT)

    assert '"to": "production"' in page.text
    assert page.elements["script"] == 2
    assert (decided.status, "was approved" in decided.text) == (200, True)
    with pytest.raises(ApprovalRequired):
        bound.check_tool_call("deploy", {"to": "staging"})
    bound.check_tool_call("deploy", {"to": "production", "note": HOSTILE})
    with pytest.raises(ApprovalRequired):
        bound.check_tool_call("deploy", {"to": "production", "note": HOSTILE})
    assert there.tally.bind(ADA).approvals.get(waiting.id).decided_reason == "checked"


def test_a_denial_holds_until_it_is_taken_back(there: Served, ada: Browser) -> None:
    waiting = blocked(there, {"to": "mars"})
    form = ada.get(f"approvals/{waiting.id}").form(f"/{waiting.id}")
    denied = ada.send(form, reason="too far", decision="deny")
    bound = there.tally.bind(AGENT)
    with pytest.raises(ActionDenied, match="too far"):
        bound.check_tool_call("deploy", {"to": "mars"})
    taken = ada.send(denied.form(f"/{waiting.id}"), reason="nearer now", decision="revoke")

    assert "was denied" in denied.text
    assert "was taken back" in taken.text
    with pytest.raises(ApprovalRequired):
        bound.check_tool_call("deploy", {"to": "mars"})
    assert ada.send(form, reason="again", decision="sing").status == 422
    assert ada.send(form, reason=" ", decision="deny").status == 422
    assert ada.send(form, reason="late", decision="deny").status == 409
    assert ada.get("approvals?state=odd").status == 422


def test_a_token_without_a_person_and_a_stranger_decide_nothing(
    there: Served, ada: Browser
) -> None:
    waiting = blocked(there, {"to": "moon"})
    with (
        Browser(there.tcp, there.token(ADA)) as personal,
        Browser(there.tcp, there.token(BOB, token_class="session")) as bob,
    ):
        form = personal.get(f"approvals/{waiting.id}").form(f"/{waiting.id}")
        refused = personal.send(form, reason="me", decision="approve")
        form.fields["form_key"] = bob.get("runs").forms[1].fields["form_key"]
        foreign = bob.send(form, reason="me", decision="approve")

        assert (refused.status, foreign.status) == (403, 404)
        assert "moon" not in bob.get("approvals?state=all").source
        assert bob.get(f"approvals/{waiting.id}").status == 404
    assert there.tally.bind(ADA).approvals.get(waiting.id).state == "pending"


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        ({"tool": "deploy"}, "It would wait for a person"),
        ({"tool": "drop", "arguments": '{"table": "users"}'}, "It would be refused"),
        ({"tool": "read"}, "It would go on"),
    ],
)
def test_a_call_is_tried_against_the_rules_without_being_made(
    there: Served, ada: Browser, call: dict[str, str], verdict: str
) -> None:
    before = len(there.tally.bind(ADA).approvals.list())
    page = ada.send(ada.get("policy").form("/policy"), **call)

    assert verdict in page.text
    assert "Ask before deploys" in page.text
    assert len(there.tally.bind(ADA).approvals.list()) == before


def test_what_is_no_call_is_refused(ada: Browser) -> None:
    assert ada.get("policy?tool=x&arguments={").status == 422
    assert ada.get("policy?tool=x&tool_class=odd").status == 422
    assert ada.get("health?state=odd").status == 422


def test_the_doctor_looks_when_an_operator_asks(there: Served, root: Browser, ada: Browser) -> None:
    page = root.get("health")
    checked = root.send(page.form("/health/check"))

    assert "What the doctor found" not in page.text
    assert "What the doctor found" in checked.text
    assert checked.text.count("ok") > 3
    assert "journal" in root.get(next(link for link in page.links if "disk" in link)).text
    member = ada.get("health")
    assert (member.status, "Disk" in member.text) == (200, False)
    form = checked.form("/health/check")
    form.fields["form_key"] = member.forms[1].fields["form_key"]
    assert ada.send(form).status == 403


def test_a_job_is_cancelled_and_tried_again(there: Served, ada: Browser) -> None:
    played = play(there.tally, ADA)
    job = there.tally.bind(ADA).recordings.replay_later(played.step_id)
    page = ada.get(f"jobs/{job.id}")
    cancelled = ada.send(page.form("/jobs/cancel"), reason="not now")
    again = ada.send(cancelled.form("/jobs/retry"), reason="now")
    there.tally.drain()
    done = ada.get(f"jobs/{job.id}")

    assert any(job.id in link for link in ada.get("health").links)
    assert "was cancelled" in cancelled.text
    assert "will be tried again" in again.text
    assert "done" in done.text
    assert ada.send(page.form("/jobs/cancel"), reason="late").status == 409
    with Browser(there.tcp, there.token(BOB, token_class="session")) as bob:
        assert bob.get(f"jobs/{job.id}").status == 404
        assert job.id not in bob.get("health").source


def test_an_operator_suspends_changes_and_allows_them_again(
    there: Served, root: Browser, ada: Browser
) -> None:
    page = root.get("health")
    frozen = root.send(page.form("/health/freeze"), reason="an audit")
    with pytest.raises(Denied):
        there.tally.bind(ADA).remember("During the audit.")
    thawed = root.send(frozen.form("/health/thaw"), reason="it is over")
    there.tally.bind(ADA).remember("After the audit.")

    assert "suspended" in frozen.text
    assert "can be changed again" in thawed.text
    foreign = page.form("/health/freeze")
    foreign.fields["form_key"] = ada.get("runs").forms[1].fields["form_key"]
    assert ada.send(foreign, reason="mine").status == 403


def test_a_person_ends_a_token_from_its_list(there: Served) -> None:
    carol = Actor(user="carol")
    laptop = there.token(carol)
    with Browser(there.tcp, there.token(carol, token_class="session")) as browser:
        page = browser.get("health")
        forms = [form for form in page.forms if form.action.endswith("/tokens/revoke")]
        token_id = there.tally.authenticate(laptop).id
        [form] = [form for form in forms if form.fields["token_id"] == token_id]
        ended = browser.send(form, reason="lost")
        assert (len(forms), ended.status) == (2, 200)
        assert laptop not in page.source
    assert there.http(laptop).get("/v1/whoami").status_code == 401
