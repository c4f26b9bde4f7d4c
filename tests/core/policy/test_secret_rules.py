"""Secrets are found whole, in the formats that people have, in time that grows with the text."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from tests.core.policy.secret_formats import FORMATS, PLACES, Format, drawn, is_whole, shown_in

from tallystick.policy.redaction import Redactor, restored
from tallystick.policy.secret_rules import SECRET_RULES

SECRETS = Redactor()
MISSED = {
    "jdbc:mysql://db/shop?user=app&password={s}",
}
"""Formats that pass: a password of letters alone in a URL looks like any other word."""


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.template[:40])
def test_a_format_of_the_list_is_caught_whole(entry: Format) -> None:
    sample = drawn(entry, 0)

    redacted = SECRETS.redact_text(sample.text).text

    assert is_whole(redacted, sample.secret) == (entry.template not in MISSED), redacted


def test_the_list_has_220_formats_that_are_caught_of_221() -> None:
    assert len(FORMATS) == 221
    assert len({(entry.template, entry.form) for entry in FORMATS}) == 221
    assert sum(entry.template in MISSED for entry in FORMATS) == 1


def test_other_values_in_other_places_are_caught_too() -> None:
    """The rules know forms and no strings: values are drawn anew, in six surroundings."""
    samples = [
        shown_in(place, drawn(entry, seed))
        for entry in FORMATS
        for place in PLACES
        for seed in (11, 12)
    ]

    whole = sum(is_whole(SECRETS.redact_text(text).text, secret) for text, secret in samples)

    assert whole >= 0.97 * len(samples)


def test_a_stand_in_that_ends_in_its_own_name_is_no_secret() -> None:
    """Examples have these; what differs by a sign, a case or more digits may be in use."""
    for text in (
        "password = 'secure_password123'",
        "app.config['SECRET_KEY'] = 'my_csrf_secret_key'",
        "const apiKey = 'MY_API_KEY';",
        '{"username": "ada", "password": "testpassword"}',
        "new WebClient('xoxb-your-slack-token')",
        "`SECRET_KEY`: Your secret key",
    ):
        assert SECRETS.redact_text(text) == (text, {})
    for text in (
        "password = 'Password123!'",
        "password = 'password4711'",
        "password = 'passwordsafe'",
        "secret_key = 'a monkey2'",
        "password=mypassword1",
        "SECRET_KEY: Swordfish",
        "SECRET_KEY=Swordfish sends it",
        "WebClient('xoxb-2345678901-your-slack')",
    ):
        assert SECRETS.redact_text(text).counts, text


def test_what_was_redacted_comes_back_and_is_not_redacted_again() -> None:
    for entry in FORMATS:
        text = drawn(entry, 1).text
        originals: dict[str, str] = {}
        redacted, counts = SECRETS.redact_text(text, originals=originals)

        assert SECRETS.redact_text(redacted) == (redacted, {}), entry
        assert SECRETS.redact_text(text) == (redacted, counts)
        assert restored(redacted, originals) == text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "bot.run('MTE4NTk0MTIzNDU2Nzg5MDEyMw.GhT3x1.a1b2c3d4e5f6g7h8i9j0k1l2m3n')",
            "discord_token",
        ),
        (f"use figd_{'a1B2' * 10}", "figma_token"),
        (f"glsa_{'a1B2' * 8}_0a1b2c3d", "grafana_token"),
        ("see $2b$12$" + "a1B2" * 13 + "c", "password_hash"),
        ("Cookie: sid=a1b2c3d4e5f6a7b8", "cookie"),
        ("postgres://u:pa/ss@h", "url_password"),
        ("Z2hwX2ExQjJhMUIyYTFCMmExQjJhMUIyYTFCMmExQjJhMUIyYTFCMg==", "encoded_secret"),
    ],
)
def test_a_placeholder_names_the_kind(text: str, kind: str) -> None:
    assert SECRETS.redact_text(text).counts == {kind: 1}


def test_json_that_names_a_value_beside_it_loses_the_value() -> None:
    assert SECRETS.redact_json(
        {
            "environment": [
                {"name": "DB_PASSWORD", "value": "swordfish"},
                {"Key": "API_TOKEN", "Value": "a1b2c3d4"},
                {"name": "REGION", "value": "eu-west-1"},
            ],
            "auths": {"registry.example": {"auth": "ZGVwbG95Omh1bnRlcjI="}},
            "db_pass": "hunter22",
            "auth": "required",
        }
    )[0] == {
        "environment": [
            {"name": "DB_PASSWORD", "value": "[redacted:credential:3]"},
            {"Key": "API_TOKEN", "Value": "[redacted:credential:4]"},
            {"name": "REGION", "value": "eu-west-1"},
        ],
        "auths": {"registry.example": {"auth": "[redacted:credential:1]"}},
        "db_pass": "[redacted:credential:2]",
        "auth": "required",
    }


@pytest.mark.parametrize(
    "text",
    [
        "Password is base64-encoded before it is sent.",
        "The token is 0-indexed and the key is sha256.",
        "docker run --user 1000:1000 image",
        '<label for="password">Password</label> <th>password</th>',
        "second pass: 12 of 40 items, compass = north",
        '"clientRequestToken": "02ccb92b-33e8-4dfa-a0c1-35b181ed26b0"',
        "the machine learning login page password field",
        'fields = ["password", "passwd", "secret"]',
        "usage: deploy --password PASSWORD --token TOKEN",
        "auth: required, author: ada",
        "👩\u200d💻 works with zero\u200bwidth signs",
        "ordinary\nlines\nof\nwords2\n",
    ],
)
def test_what_only_looks_like_these_formats_stays(text: str) -> None:
    assert SECRETS.redact_text(text) == (text, {})


def test_a_token_cut_by_a_line_end_leaves_the_next_token_its_own() -> None:
    first, second = "ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9

    assert SECRETS.redact_text(f"{first}\n{second}\n")[0] == (
        "[redacted:github_token:1]\n[redacted:github_token:2]\n"
    )


def test_every_anchor_is_where_a_match_begins() -> None:
    """Tried at its anchors alone, a rule matches what a search with it does."""
    texts = [drawn(entry, seed).text for entry in FORMATS for seed in (0, 1)]
    for rule in SECRET_RULES:
        for text in texts:
            lowered = text.lower()
            if rule.anchors and any(word in lowered for word in rule.keywords):
                starts = {match.start() for match in rule.pattern.finditer(text)}
                assert all(
                    any(lowered.startswith(word, start) for word in rule.anchors)
                    for start in starts
                ), (rule.pattern.pattern, text)


HOSTILE = (
    "key=",
    "PASS=",
    "password=",
    "token ",
    "--password ",
    "-u a:",
    "://a:",
    "eyJ",
    "<password>",
    "|password|",
    "password is ",
    "mysql ",
    "cookie: a=",
    "\u200b",
    "ghp_a1\n",
    "-----BEGIN PRIVATE KEY-----",
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_hostile_text_of_four_times_the_size_takes_no_more_than_its_share_of_steps(
    unit: str,
) -> None:
    """Steps are the calls of Python functions, which no machine makes faster or slower."""

    def steps(size: int) -> int:
        calls: Counter[str] = Counter()
        text = (unit * (size // len(unit) + 1))[:size]

        def count(_: object, event: str, __: object) -> None:
            calls[event] += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            SECRETS.redact_text(text)
        finally:
            sys.setprofile(before)
        return sum(calls.values())

    steps(33_000)  # compiles what is compiled at its first use
    assert steps(32_000) <= 5 * steps(8_000) + 2_000
