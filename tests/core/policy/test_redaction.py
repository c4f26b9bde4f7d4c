"""Redaction: secrets go, ids stay, and what was replaced can be told apart but not read."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import InvalidInput
from tallystick.policy import redaction
from tallystick.policy.gates import gates_of
from tallystick.policy.personal_data import PII_RULES
from tallystick.policy.redaction import Finding, Redactor, restored
from tallystick.policy.secret_checks import Check, Rule
from tallystick.policy.secret_rules import SECRET_RULES
from tallystick.records import Json

SECRETS = Redactor()
EVERYTHING = Redactor(pii=True, terms=["Project Kestrel"])

CHANCE = random.Random(5)
ALPHANUMERIC = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def made(count: int, alphabet: str = ALPHANUMERIC) -> str:
    """A random value with the form of a credential; none is real."""
    return "".join(CHANCE.choices(alphabet, k=count))


def jwt() -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': made(10), 'iat': 17})}.{made(43)}"


def key_block() -> str:
    lines = "\n".join(made(64, ALPHANUMERIC + "+/") for _ in range(6))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{lines}\n-----END RSA PRIVATE KEY-----"


BY_FORM: dict[str, tuple[str, Callable[[], str]]] = {
    "AWS key id": (
        "aws_access_key_id",
        lambda: "AKIA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
    ),
    "GitHub token": ("github_token", lambda: "ghp_" + made(36)),
    "GitHub fine-grained token": ("github_token", lambda: f"github_pat_{made(22)}_{made(59)}"),
    "GitLab token": ("gitlab_token", lambda: "glpat-" + made(20)),
    "Slack token": (
        "slack_token",
        lambda: f"xoxb-{made(12, string.digits)}-{made(13, string.digits)}-{made(24)}",
    ),
    "OpenAI key": ("openai_key", lambda: f"sk-proj-{made(74)}T3BlbkFJ{made(74)}"),
    "older OpenAI key": ("openai_key", lambda: f"sk-{made(20)}T3BlbkFJ{made(20)}"),
    "Anthropic key": ("anthropic_key", lambda: f"sk-ant-api03-{made(93)}AA"),
    "Google key": ("google_key", lambda: "AIza" + made(35)),
    "Stripe key": ("stripe_key", lambda: "sk_live_" + made(24)),
    "JWT": ("jwt", jwt),
    "npm token": ("npm_token", lambda: "npm_" + made(36)),
    "Hugging Face token": ("huggingface_token", lambda: "hf_" + made(34, string.ascii_letters)),
    "SendGrid key": ("sendgrid_key", lambda: f"SG.{made(22)}.{made(43)}"),
    "private key": ("private_key", key_block),
}
PLACES = {
    "prose": "Sure, here it is: {} and please continue.",
    "code": 'client = Client("{}")',
    "environment": "REGION=eu\nVALUE={}\nDEBUG=false",
    "escaped line end": "first line\\n{}\\nlast line",
    "URL": "https://example.com/?q%3D{}&page=2",
    "Chinese": "密钥{}。",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", BY_FORM)
def test_a_credential_is_redacted_by_its_form_wherever_it_stands(name: str, place: str) -> None:
    kind, make = BY_FORM[name]
    secret = make()

    assert SECRETS.redact_text(PLACES[place].format(secret)) == (
        PLACES[place].format(f"[redacted:{kind}:1]"),
        {kind: 1},
    )


@pytest.mark.parametrize(
    ("text", "kind", "secret"),
    [
        ("Authorization: Bearer abc123def456ghi789", "bearer_token", "abc123def456ghi789"),
        ('{"authorization": "Basic dXNlcjpodW50ZXIy"}', "basic_auth", "dXNlcjpodW50ZXIy"),
        ("postgresql://app:s3cr3t!@db:5432/orders", "url_password", "s3cr3t!"),
        ("redis://:p@ss@cache:6379", "url_password", "p@ss"),
        (
            "https://api.example/v1/models?alt=json&key=AbCd0123456789EfGh",
            "url_key",
            "AbCd0123456789EfGh",
        ),
        (
            "https://blob.example/a.txt?se=2026&sig=a1B2c3D4e5F6g7H8%3D",
            "url_key",
            "a1B2c3D4e5F6g7H8%3D",
        ),
        ('DB_PASSWORD="correct horse"', "credential", "correct horse"),
        ("PASSWORD=swordfish", "credential", "swordfish"),
        ("password: hunter22", "credential", "hunter22"),
        ("aws_secret_access_key = abcd/efg+hijABCD1234", "credential", "abcd/efg+hijABCD1234"),
        ('{\\"password\\": \\"abc123x\\"}', "credential", "abc123x"),
        ("x-api-key: 0123abcd4567", "credential", "0123abcd4567"),
        ('secret_key = b"abcd1234"', "credential", "abcd1234"),
        ("deploy --password hunter2 --force", "credential", "hunter2"),
        ("deploy --token=abcdef123456", "credential", "abcdef123456"),
        (
            "https://hooks.slack.com/services/T0000/B0000/abcdefgh",
            "slack_webhook",
            "T0000/B0000/abcdefgh",
        ),
    ],
)
def test_a_secret_is_redacted_by_what_it_stands_behind(text: str, kind: str, secret: str) -> None:
    assert SECRETS.redact_text(text) == (text.replace(secret, f"[redacted:{kind}:1]"), {kind: 1})


def test_a_private_key_that_was_cut_off_is_redacted_up_to_its_end() -> None:
    text = "\n".join(key_block().splitlines()[:4]) + "\n... (truncated)"

    assert SECRETS.redact_text(text)[0] == "[redacted:private_key:1]... (truncated)"


@pytest.mark.parametrize(
    "text",
    [
        "The password reset page was mentioned twice; the secret to a good answer is brevity.",
        "password: str",
        "def login(password: SecretStr, token: Optional[str] = None) -> None:",
        "password=password, token=self.token",
        'api_key=os.environ["OPENAI_API_KEY"]',
        "api_key: ${API_KEY}",
        "PASSWORD=********",
        "https://shop.example/search?key=green-tea-in-a-large-tin&page=2",
        "PASSWORD=<your password>",
        "token = tokenizer1.encode(text)",
        '"total_tokens": 40961, "cache_read_input_tokens": 40960',
        '"next_page_token": "CAESBgoEY2Q1YWJj1234"',
        "PWD=/home/alice/project",
        "Bearer authentication is described below",
        "http://localhost:8080/users/@me",
        "-----BEGIN PRIVATE KEY----- goes on the first line",
        "task-0123456789abcdef0123456789abcdef0123",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    ],
)
def test_code_and_prose_about_secrets_stay(text: str) -> None:
    assert SECRETS.redact_text(text) == (text, {})


# Look-alikes


def of(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=size, max_size=size)


LOOKALIKES = st.one_of(
    of(ALPHANUMERIC, 24).map("call_{}".format),
    of(ALPHANUMERIC, 22).map("toolu_01{}".format),
    of(ALPHANUMERIC, 24).map("msg_{}".format),
    of(ALPHANUMERIC, 24).map("chatcmpl-{}".format),
    of(HEX, 48).map("resp_{}".format),
    st.uuids().map(str),
    st.uuids().map(lambda value: value.hex),
    st.uuids().map("run-{}".format),
    of(HEX, 40),
    of(HEX, 64),
    of(HEX, 64).map("sha256:{}".format),
    of(HEX, 64).map("hmac-sha256:{}".format),
    st.tuples(of(HEX, 32), of(HEX, 16)).map(lambda parts: f"00-{parts[0]}-{parts[1]}-01"),
    st.integers(0, 10**18).map(str),
    st.datetimes().map(lambda value: value.isoformat() + "Z"),
)


@given(
    LOOKALIKES,
    st.sampled_from(["{}", "see {} for more", '{{"ref": "{}"}}', "ref={}\n", "a\\n{}\\n"]),
)
def test_ids_digests_and_times_are_left_whole(value: str, place: str) -> None:
    text = place.format(value)

    assert SECRETS.redact_text(text) == (text, {})


@given(st.one_of(st.uuids().map(str), of(HEX, 64), of(ALPHANUMERIC, 24).map("call_{}".format)))
def test_ids_are_left_whole_when_personal_data_is_redacted_too(value: str) -> None:
    assert EVERYTHING.redact_text(f"ref {value}, next") == (f"ref {value}, next", {})


@given(
    st.dictionaries(
        st.sampled_from(["id", "tool_call_id", "run_id", "trace_id", "text"]), LOOKALIKES
    )
)
def test_json_of_ids_is_left_whole(fields: dict[str, str]) -> None:
    value: Json = {"messages": [{**fields}]}

    assert SECRETS.redact_json(value) == (value, {})


# Personal data and terms


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("jane.doe+tag@mail.example.co.uk", "email"),
        ("4111 1111 1111 1111", "credit_card"),
        ("378282246310005", "credit_card"),
        ("DE89 3704 0044 0532 0130 00", "iban"),
        ("GB82WEST12345698765432", "iban"),
        ("123-45-6789", "us_ssn"),
        ("+1 415 555 0199", "phone"),
        ("+49 (30) 123 4567", "phone"),
        ("(415) 555-0199", "phone"),
        ("203.0.113.7", "ip_address"),
        ("project kestrel", "term"),
    ],
)
def test_personal_data_is_redacted_only_where_asked_for(value: str, kind: str) -> None:
    text = f"Please note {value}, thank you."

    assert SECRETS.redact_text(text) == (text, {})
    assert EVERYTHING.redact_text(text) == (
        f"Please note [redacted:{kind}:1], thank you.",
        {kind: 1},
    )


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "DE89 3704 0044 0532 0130 01",
        "000-12-3456",
        "version v1.22.3.4",
        "127.0.0.1:8080",
        "999.1.1.1",
        "ORD-2026-123456",
        "2026-11-20T15:04:05.123456Z",
        "@decorator and a@b",
        "Project Kestrels",
        "subproject kestrel",
    ],
)
def test_what_fails_its_check_is_no_personal_data(text: str) -> None:
    assert EVERYTHING.redact_text(text) == (text, {})


def test_terms_are_found_in_any_case_and_script() -> None:
    redactor = Redactor(terms=["Kestrel", "隼"])

    assert redactor.redact_text("KESTREL, kestrel (Kestrel) 隼計画")[0] == (
        "[redacted:term:1], [redacted:term:2] ([redacted:term:3]) [redacted:term:4]計画"
    )


def test_a_term_is_found_across_the_end_of_a_line_and_however_its_marks_are_typed() -> None:
    redactor = Redactor(terms=["Project Kestrel", "M\u00fcnchen", "Cafe\u0301 Sol"])

    for text in (
        "project\r\n  kestrel",
        "Project\u00a0Kestrel",
        "Mu\u0308nchen",
        "m\u00fcnchen",
        "Caf\u00e9 Sol",
    ):
        assert redactor.redact_text(f"We met at {text}.")[0] == "We met at [redacted:term:1]."
    assert redactor.redact_text("A project. Kestrel flew.")[0] == "A project. Kestrel flew."


@pytest.mark.parametrize("terms", [[""], ["ok", "  "], "Kestrel"])
def test_terms_that_would_redact_everything_are_refused(terms: Any) -> None:
    with pytest.raises(InvalidInput):
        Redactor(terms=terms)


# Placeholders


def test_an_address_is_looked_into_only_where_somebody_signs_in() -> None:
    gate = gates_of(tuple(SECRET_RULES)).gate
    assert gate is not None

    assert not gate.opens("See file:///srv/birds/a.md and ftp://example.org/herons?page=2.")
    assert gate.opens("postgres://ada:heron7341@db.example/birds")
    assert gate.opens("https://\u00e4da:heron%207341@example.org")


def test_equal_secrets_share_a_number_in_order_of_first_appearance() -> None:
    first, two = "ghp_" + made(36), "ghp_" + made(36)
    address = "redis://:hunter22@cache"

    text, counts = SECRETS.redact_text(f"{first} {two} {first} {address}")

    assert text == (
        "[redacted:github_token:1] [redacted:github_token:2] [redacted:github_token:1] redis://:[redacted:url_password:1]@cache"
    )
    assert counts == {"github_token": 3, "url_password": 1}


def test_new_placeholders_are_numbered_after_those_that_stand_there() -> None:
    assert SECRETS.redact_text("[redacted:credential:7] PASSWORD=swordfish")[0] == (
        "[redacted:credential:7] PASSWORD=[redacted:credential:8]"
    )


def test_a_placeholder_inside_a_secret_does_not_shield_it() -> None:
    assert (
        SECRETS.redact_text('password="hunter2 [redacted:x:1]"')[0]
        == 'password="[redacted:credential:1]"'
    )


def test_overlapping_findings_become_one_placeholder() -> None:
    assert SECRETS.redact_text(f"OPENAI_API_KEY=sk-proj-{made(60)}") == (
        "OPENAI_API_KEY=[redacted:openai_key:1]",
        {"openai_key": 1},
    )


def test_findings_are_in_order_and_apart() -> None:
    text = f"{jwt()} PASSWORD=swordfish Bearer {jwt()} jane@example.com"

    findings = EVERYTHING.find(text)

    assert [finding.kind for finding in findings] == ["jwt", "credential", "jwt", "email"]
    assert all(before.end <= after.start for before, after in pairwise(findings))


PLACEHOLDER = re.compile(r"\[redacted:[a-z0-9_]+:\d+\]")
FRAGMENTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "password=",
            '"',
            "'",
            "token: ",
            "secret_key = ",
            "ghp_" + "a1" * 18,
            "sk-ant-api03-" + "a1" * 20,
            "Bearer ",
            "https://a:",
            "@host",
            "jane@example.com",
            "[redacted:email:1]",
            "[redacted:term:2]",
            ".",
            "4111111111111111",
            "Project Kestrel",
            "\\n",
            "-----BEGIN PRIVATE KEY-----",
            "A" * 40,
            "-----END PRIVATE KEY-----",
            "eyJ" + "a" * 12,
            "--password ",
            "203.0.113.7",
            "hunter2",
            " ",
        ]
    ),
)


@given(st.lists(FRAGMENTS, max_size=12).map("".join))
def test_redacting_again_changes_nothing(text: str) -> None:
    once, _ = EVERYTHING.redact_text(text)

    assert EVERYTHING.redact_text(once) == (once, {})


@given(st.lists(FRAGMENTS, max_size=40).map("".join), st.integers(60, 200))
def test_a_later_pass_beside_new_placeholders_finds_what_one_over_all_finds(
    text: str, apart: int
) -> None:
    text = text.replace(".", "x " * apart)
    windows = redaction._around
    near = EVERYTHING.redact_text(text)
    try:
        redaction._around = lambda placeholders, length: [(0, length)]
        whole = EVERYTHING.redact_text(text)
    finally:
        redaction._around = windows

    assert near == whole


@pytest.mark.parametrize(
    "text",
    ["PASS=PASS=" * 1_000, "PASS=PASS=\u200b" * 500, "PASS=PASS=" * 40 + "x" * 9_000],
)
def test_a_text_that_gives_ever_new_secrets_is_closed(text: str) -> None:
    """Whatever is redacted once has nothing left to redact."""
    originals: dict[str, str] = {}
    once = Redactor().redact_text(text, originals=originals).text

    assert Redactor().redact_text(once).text == once
    assert restored(once, originals) == text


@pytest.mark.parametrize("text", ["PASS=", "PASS=PASS=\u200b", "secret=PASS=\n", "PASS=a1\u0130"])
def test_text_that_calls_for_many_passes_is_looked_at_once(text: str) -> None:
    """Each confirmation of a match is work: passes after the first confirm a few."""
    confirmed: list[int] = []

    def counting(rule: Rule) -> Rule:
        def check(match: re.Match[str]) -> bool:
            confirmed.append(match.start())
            return rule.check is None or rule.check(match)

        return replace(rule, check=check)

    redactor = Redactor([counting(rule) for rule in SECRET_RULES])
    times = 60_000 // len(text)
    redactor._found_by(text * times, redactor._rules)
    once = len(confirmed)
    confirmed.clear()
    redactor.redact_text(text * times)

    assert len(confirmed) <= 1.5 * once + 1_000


def test_a_long_text_is_searched_once_and_redacted_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "the key of the harbour, token=a1B2c3D4e5F6a1B2 and more " * 500
    redactor = Redactor()
    first = redactor.redact_text(text)
    searched: list[str] = []
    find = redaction._findings

    def counting(text: str, *rest: Any) -> list[Finding]:
        searched.append(text)
        return find(text, *rest)

    monkeypatch.setattr(redaction, "_findings", counting)

    assert redactor.redact_text(text) == first == Redactor().redact_text(text)
    assert searched.count(text) == 1  # by the redactor that had not seen it


@given(st.lists(FRAGMENTS, max_size=12).map("".join))
def test_redaction_takes_out_and_puts_in_nothing_else(text: str) -> None:
    redacted, counts = EVERYTHING.redact_text(text)

    rest = text
    for piece in PLACEHOLDER.split(redacted):
        _, matched, rest = rest.partition(piece) if piece else ("", "", rest)
        assert matched == piece
    assert sum(counts.values()) >= len(EVERYTHING.find(text))
    assert (redacted == text) == (not counts) == (not EVERYTHING.find(text))


@given(st.text())
def test_text_without_secrets_comes_back_as_it_is(text: str) -> None:
    assert Redactor(rules=()).redact_text(text) == (text, {})


# JSON


def test_a_text_under_a_key_that_names_a_secret_is_redacted_whole() -> None:
    value: Json = {
        "old_passwords": ["her cat's name", ""],
        "password": "my dog's name",
        "apiKey": "abcd-efgh",
        "x-api-key": "abcd",
        "headers": {"Authorization": "Bearer x", "Accept": "text/html"},
        "token": " information",
        "usage": {"total_tokens": 12, "token": "a1b2c3d4e5f6a7b8"},
        "type": "password",
        "secret": None,
    }

    assert SECRETS.redact_json(value) == (
        {
            "old_passwords": ["[redacted:credential:3]", ""],
            "password": "[redacted:credential:4]",
            "apiKey": "[redacted:credential:1]",
            "x-api-key": "[redacted:credential:6]",
            "headers": {"Authorization": "[redacted:credential:2]", "Accept": "text/html"},
            "token": " information",
            "usage": {"total_tokens": 12, "token": "[redacted:credential:5]"},
            "type": "password",
            "secret": None,
        },
        {"credential": 6},
    )


def test_a_schema_that_describes_secrets_is_left_whole() -> None:
    schema: Json = {
        "type": "object",
        "properties": {
            "password": {"type": "string"},
            "api_key": {"type": "string", "format": "password"},
        },
        "required": ["password", "api_key"],
    }

    assert SECRETS.redact_json(schema) == (schema, {})


def test_secrets_are_redacted_in_texts_and_keys_at_any_depth() -> None:
    secret = "ghp_" + made(36)

    assert SECRETS.redact_json(
        [{"a": [1, True, None, 2.5, f"see {secret}"]}, {secret: secret}]
    ) == (
        [
            {"a": [1, True, None, 2.5, "see [redacted:github_token:1]"]},
            {"[redacted:github_token:1]": "[redacted:github_token:1]"},
        ],
        {"github_token": 3},
    )


def test_protocol_ids_are_exempt_by_key() -> None:
    redactor = Redactor(terms=["kestrel"], pii=True)
    value: Json = {
        "run_id": "kestrel",
        "note": "kestrel",
        "calls": [{"call_id": "kestrel"}],
        "ref": "kestrel",
    }

    assert redactor.redact_json(value)[0] == {
        "run_id": "kestrel",
        "note": "[redacted:term:1]",
        "calls": [{"call_id": "kestrel"}],
        "ref": "[redacted:term:1]",
    }


def test_the_label_of_a_field_is_no_secret() -> None:
    text = '<label for="password">Password:</label> <password>sommerregen77</password>'

    assert Redactor().redact_text(text).text == text.replace(
        "sommerregen77", "[redacted:credential:1]"
    )


def test_an_exempt_field_keeps_ids_and_not_credentials() -> None:
    value: Json = {
        "id": "ghp_" + made(36),
        "run_id": "PASSWORD=swordfish and more",
        "trace_id": "a" * 32,
    }

    assert SECRETS.redact_json(value)[0] == {
        "id": "[redacted:github_token:1]",
        "run_id": "PASSWORD=[redacted:credential:1] and more",
        "trace_id": "a" * 32,
    }


def test_a_call_and_its_result_keep_one_id() -> None:
    call = "call_" + made(24)
    value: Json = [
        {
            "role": "assistant",
            "tool_calls": [{"id": call, "function": {"arguments": '{"password": "hunter22"}'}}],
        },
        {"role": "tool", "tool_call_id": call, "content": "logged in with hunter22"},
    ]

    redacted, counts = SECRETS.redact_json(value)

    assert json.dumps(redacted).count(call) == 2
    assert counts == {"credential": 1}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.lists(FRAGMENTS, max_size=4).map("".join),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=6) | st.sampled_from(["password", "token", "id", "note"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_json_redacted_again_changes_nothing(value: Json) -> None:
    once, _ = EVERYTHING.redact_json(value)

    assert EVERYTHING.redact_json(once) == (once, {})


@given(
    st.dictionaries(st.text(max_size=6), st.lists(FRAGMENTS, max_size=4).map("".join), max_size=5)
)
def test_the_order_of_keys_changes_no_placeholder(fields: dict[str, str]) -> None:
    forwards: Json = {**fields}
    backwards: Json = {**dict(reversed(fields.items()))}

    assert EVERYTHING.redact_json(backwards) == EVERYTHING.redact_json(forwards)


def test_the_value_handed_in_is_not_changed() -> None:
    value: Json = {"password": "hunter22", "list": ["PASSWORD=swordfish"]}
    before = json.dumps(value)

    SECRETS.redact_json(value)

    assert json.dumps(value) == before


@pytest.mark.parametrize("value", [{"a": uuid.uuid4()}, [b"bytes"], {1: "a"}, ("a",)])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        SECRETS.redact_json(value)


# Rules


def test_a_rule_of_ones_own_joins_the_table() -> None:
    badge = Rule("badge", re.compile(r"\bB-(?P<secret>\d{4})\b"), ("b-",))

    assert (
        Redactor([*SECRET_RULES, badge]).redact_text("badge B-1234")[0]
        == "badge B-[redacted:badge:1]"
    )


def test_a_kind_that_would_break_a_placeholder_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Redactor([Rule("a:b]", re.compile("x"))])


def test_every_rule_runs_only_where_a_keyword_in_lower_case_stands() -> None:
    assert all(
        keyword == keyword.lower() != "" for rule in SECRET_RULES for keyword in rule.keywords
    )
    assert all(rule.keywords for rule in SECRET_RULES)


@pytest.mark.parametrize("words", ["Straße", 'a "b"', "c\\d", "ключ\n", "a.b|c"])
def test_a_keyword_of_any_signs_is_seen_in_json_too(words: str) -> None:
    own = Redactor([*SECRET_RULES, Rule("own", re.compile(re.escape(words)), (words.lower(),))])

    assert own.redact_text(f"see {words}!") == ("see [redacted:own:1]!", {"own": 1})
    assert own.may_hold(json.dumps({"note": words}, ensure_ascii=False).encode())
    assert not own.may_hold(json.dumps({"note": "nothing", "tokens": 12}).encode())


@given(JSON)
def test_where_nothing_may_be_held_nothing_is_redacted(value: Json) -> None:
    if not SECRETS.may_hold(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")):
        assert SECRETS.redact_json(value) == (value, {})


@given(st.lists(FRAGMENTS, max_size=12).map("".join))
def test_the_quick_look_changes_no_result(text: str) -> None:
    slow = Redactor(finders=[lambda _: ()])

    assert SECRETS.redact_text(text) == slow.redact_text(text)
    assert SECRETS.redact_json({"note": [text]}) == slow.redact_json({"note": [text]})


def test_no_quantifier_of_a_rule_is_unbounded() -> None:
    """An unbounded one would let a hostile text take time that grows with its square."""
    for rule in (*SECRET_RULES, *PII_RULES):
        plain = re.sub(r"\\.|\[(?:\\.|[^\]])*\]", "x", rule.pattern.pattern)
        assert not re.search(r"\*|(?<![}+])\+|\{\d+,\}", plain), (rule.kind, plain)


@given(st.text(max_size=40), st.text(max_size=40))
def test_what_was_replaced_comes_back_from_the_map_that_was_kept_here(
    before: str, after: str
) -> None:
    text = f"{before} sk-ant-api03-{'a1B2' * 20} {after}"
    originals: dict[str, str] = {}
    redacted, counts = Redactor().redact_text(text, originals=originals)
    assert "a1B2a1B2" not in redacted
    assert counts
    assert restored(redacted, originals) == text


def test_whole_numbers_are_redacted_where_their_digits_would_be() -> None:
    redacted, counts = Redactor(pii=True).redact_json(
        {
            "card": 4111111111111111,
            "password": 73417341,
            "n": 12,
            "created_at": 1_700_000_000_000_000,
            "ok": True,
        }
    )
    assert redacted == {
        "card": "[redacted:credit_card:1]",
        "password": "[redacted:credential:1]",
        "n": 12,
        "created_at": 1_700_000_000_000_000,
        "ok": True,
    }
    assert counts == {"credential": 1, "credit_card": 1}


def test_an_engine_of_the_user_s_own_finds_what_our_rules_do_not() -> None:
    def codenames(text: str) -> list[Finding]:
        start = text.find("Nightjar")
        return [Finding(start, start + 8, "codename")] if start >= 0 else []

    redactor = Redactor(finders=[codenames])
    assert redactor.redact_text("Project Nightjar ships.") == (
        "Project [redacted:codename:1] ships.",
        {"codename": 1},
    )
    assert redactor.redact_json({"a": ["Nightjar"]}) == (
        {"a": ["[redacted:codename:1]"]},
        {"codename": 1},
    )


def test_a_long_hostile_text_is_searched_once_however_often_it_is_redacted() -> None:
    """A turn redacts a message some ten times. What is kept of it in between is no text."""
    confirmed = 0

    def counting(check: Check) -> Check:
        def checked(match: re.Match[str]) -> bool:
            nonlocal confirmed
            confirmed += 1
            return check(match)

        return checked

    rules = [
        rule if rule.check is None else replace(rule, check=counting(rule.check))
        for rule in SECRET_RULES
    ]
    redactor = Redactor(rules)
    text = "PASS=PASS=" * 1_000
    first = redactor.redact_text(text)
    searched = confirmed
    assert searched > 0
    assert redactor.redact_text(text) == first
    assert redactor.redact_json({"content": text}).value == {"content": first.text}
    assert confirmed == searched
    kept = repr(vars(redactor)["_known_texts"])
    assert "PASS" not in kept
