"""Checks of values: what is a secret, and what is code, prose or a stand-in beside its name; and
the rule that such a check confirms.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tallystick.loading import late_pattern

PLACEHOLDER = late_pattern(r"\[redacted:([a-z0-9_]{1,40}):(\d{1,12})\]")
"""The text that stands in for what was redacted: its kind and its number."""

_STRONG_KEY = late_pattern(
    r"(?:^|[_.-])(?:(?:passw(?:or)?d|passphrase|passcode|api_?key|access_?key|auth_?key|private_?key"
    r"|signing_?key|encryption_?key)s?|passwort|pwd|secret|secretkey|client_?secret"
    r"|secret_?access_?key|secret_?key_?base|access_?token|auth_?token|refresh_?token|id_?token"
    r"|bearer_?token|api_?token|session_?token|identity_?token|registry_?token|authorization"
    r"|proxy_?authorization|cookie|set_?cookie|connection_?string|credentials?|master_?key|psk"
    r"|preshared_?key|subscription_?key|account_?key|client_?key_?data)$"
)
_PASS_KEY = late_pattern(r"(?:^|[_.-])(?:pass|psw|pw)$")
_WEAK_KEY = late_pattern(r"(?<!page)(?<!next)(?<!sync)(?:^|[_.-])token$")
_AUTH_KEY = late_pattern(r"(?:^|[_.-])auth$")
_CAMEL = late_pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_A_SECRET = late_pattern(
    r"""[$%#]?\{.*|\$\(.*|\$\w+|%\w+%|<.*|\[.*|\(.*|[*x•.#_-]+|none|null|nil|true|false|undefined"""
    r"""|required|optional|string|str|text|password|passwd|secret|token|example|changeme"""
    r"""|your[_-].*|empty|unset|hidden|include|omit|same-origin"""
    r"""|os\.(?:environ|getenv).*|process\.env.*|getenv.*|env\..*|self\..*|settings\..*|config\..*"""
    r"""|secrets\..*""",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSION = late_pattern(r"[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]+)*(?:[(\[].*)?", re.DOTALL)

_FOLDER = late_pattern(r"[/~.]|[A-Za-z]:[\\/]")
"""The beginning of a folder: shells keep the working one in `PWD`."""
_DOTTED = late_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_ALGORITHM = late_pattern(
    r"(?:base|sha|md|utf|aes|rsa|rfc|oauth|http|ascii|int|uint|float|ed|p|v|u?cs|iso|x|python|py)"
    r"[-_]?\d.{0,12}|\d{1,4}[-\w]{0,4}[-_][a-z]{2,}.*",
    re.IGNORECASE,
)
"""Names of algorithms and `0-indexed`, which have digits as generated values have."""


def names_a_secret(key: str, value: str) -> bool:
    """Return True if `value` under `key` of a JSON object must be redacted whole."""
    name = _CAMEL.sub("_", key).lower().replace("-", "_")
    value = PLACEHOLDER.sub("", value)
    if not value.strip() or _NOT_A_SECRET.fullmatch(value):
        return False
    if name.endswith("pwd") and _FOLDER.match(value):
        return False
    if _STRONG_KEY.search(name):
        return len(value) >= 4
    if _PASS_KEY.search(name):
        return len(value) >= 6 and not re.search(r"\s", value)
    if _AUTH_KEY.search(name):
        return _is_basic(value)
    return (
        bool(_WEAK_KEY.search(name))
        and len(value) >= 16
        and _has_letters_and_digits(value)
        and not re.search(r"\s", value)
    )


def _is_basic(value: str) -> bool:
    """Return True if a value is a user and a password in base64."""
    try:
        return ":" in base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return False


def _has_letters_and_digits(value: str) -> bool:
    """Return True if a value has both letters and digits, as generated secrets have and words have
    not.
    """
    signs = set(value)
    return any(sign.isdigit() for sign in signs) and any(sign.isalpha() for sign in signs)


def _value(match: re.Match[str]) -> str:
    return PLACEHOLDER.sub("", match["secret"])


def is_written_out(match: re.Match[str]) -> bool:
    """Return True if the value is one, and not a stand-in or a name of a variable."""
    value = _value(match)
    return len(value) >= 4 and bool(value.strip()) and not _NOT_A_SECRET.fullmatch(value)


def is_not_a_number(match: re.Match[str]) -> bool:
    """Return True if the value is written out and more than digits: ids of users have those."""
    return is_written_out(match) and not _value(match).isdigit()


def is_generated(match: re.Match[str]) -> bool:
    """Return True if the value has letters and digits and is no name of an algorithm."""
    value = _value(match)
    return (
        len(value) >= 6
        and _has_letters_and_digits(value)
        and not _NOT_A_SECRET.fullmatch(value)
        and not _ALGORITHM.fullmatch(value)
        and not _DOTTED.fullmatch(value)
    )


def is_cookie(match: re.Match[str]) -> bool:
    """Return True if a cookie's value is long enough to let somebody in."""
    return len(_value(match)) >= 12 and is_generated(match)


def is_user_and_password(match: re.Match[str]) -> bool:
    """Return True if the value is a user and a password in base64, or long enough for a token."""
    value = _value(match)
    return _is_basic(value) or (len(value) >= 20 and is_generated(match))


def is_named_secret(match: re.Match[str]) -> bool:
    """Return True if the text's own name of the value names a secret."""
    value, name = _value(match), match["name"]
    if " " in value.strip() and not _has_letters_and_digits(value):
        return False
    return names_a_secret(name, value) and not (value.isalpha() and value.lower() in name.lower())


def is_chosen(match: re.Match[str]) -> bool:
    """Return True if the value is a password as people choose them: more than one word."""
    return is_generated(match) or (
        len(_value(match)) >= 6
        and _has_letters_and_digits(_value(match))
        and not _ALGORITHM.fullmatch(_value(match))
    )


def is_stated_secret(match: re.Match[str]) -> bool:
    """Return True if the value is a secret, and a key or token one of those that let in."""
    name = match["name"].lower()
    before = _before(match)
    if name in ("key", "token") and not _OWNER.search(before):
        return name == "token" and len(_value(match)) >= 16 and is_generated(match)
    return is_chosen(match)


def is_element(match: re.Match[str]) -> bool:
    """Return True if an element of XML has a secret."""
    name = match["name"].lower()
    if name == "key" and not _OWNER.search(_before(match)):
        return False
    if name == "token":
        return len(_value(match)) >= 12 and is_generated(match)
    # The label of a field says its name: `<label for="password">Password:</label>`.
    return is_written_out(match) and re.sub(r"\W", "", _value(match)).lower() != name


_FLAG = late_pattern(
    r"(?<![\w-])--?(?:[A-Za-z]{1,20}[_-]?){0,4}$|\\[nrt]--?(?:[A-Za-z]{1,20}[_-]){0,4}$"
)


def is_flag(match: re.Match[str]) -> bool:
    """Return True if a flag of a command line has a secret."""
    name, value = match["name"].lower(), _value(match)
    before = _before(match)
    if "-" not in before or not _FLAG.search(before):
        return False
    if name == "key" and not _OWNER.search(before):
        return False
    if name.startswith("passw") and match.string[match.end("name")] == "=" and not match["quote"]:
        return is_written_out(match) and not value.isupper() and not _EXPRESSION_CALL.match(value)
    if match["quote"]:
        return is_written_out(match)
    if name == "token" and len(value) < 12:
        return False
    return is_chosen(match) or (
        len(value) >= 6
        and not value.isalnum()
        and not _EXPRESSION.fullmatch(value)
        and not _NOT_A_SECRET.fullmatch(value)
        and not _DOTTED.fullmatch(value)
    )


def is_property(match: re.Match[str]) -> bool:
    """Return True if a line is `name=value` and nothing else, as files of properties have it."""
    return (
        bool(_PROPERTY.search(_before(match)))
        and is_written_out(match)
        and not _EXPRESSION_CALL.match(_value(match))
        and not _value(match).lower().endswith(match["name"].lower())
    )


_PROPERTY = late_pattern(r"(?:^|[\r\n]|\\n)[\w.-]{0,80}$")


def is_environment_secret(match: re.Match[str]) -> bool:
    """Return True if a variable of the environment has a secret."""
    value = _value(match)
    variable = _VARIABLE.search(_before(match))
    if variable is None:
        return False
    if match["name"] in ("KEY", "AUTH"):
        return bool(variable[0]) and len(value) >= 16 and is_generated(match)
    return names_a_secret(match["name"], value) and not _EXPRESSION_CALL.match(value)


_VARIABLE = late_pattern(r"(?:(?<=[\s\"'])|(?<=\\n)|^)(?:[A-Z][A-Z0-9_]{0,50}_|[A-Z]{0,8})$")
_EXPRESSION_CALL = late_pattern(r"[A-Za-z_][\w.]*[(\[]|[|:]{2}|[=!]=?$")


def _before(match: re.Match[str]) -> str:
    """Return the text before a match, as far as a name reaches."""
    return match.string[max(0, match.start() - 64) : match.start()]


_OWNER = late_pattern(
    r"(?:api|access|auth|secret|private|signing|encryption|account|master|shared|subscription"
    r"|client|refresh|session|identity|registry|id)[ _-]?$",
    re.IGNORECASE,
)
"""The word before `key` or `token` that makes it one that lets in."""
_PAGE = late_pattern(r"(?:page|next|sync|request|continuation|change)[_-]?$", re.IGNORECASE)


_WORD_AND_DIGITS = late_pattern(r"[A-Za-z]\w*\.(?=\w*\d)\w*[A-Z]\w*")
"""A password with a full stop in it: no name in code has digits and capitals mixed so."""


def is_assigned_secret(match: re.Match[str]) -> bool:
    """Return True if the assigned value is a secret, and not code, prose or a placeholder."""
    value = _value(match)
    if not value.strip() or _NOT_A_SECRET.fullmatch(value) or _is_rest_of_expression(match):
        return False
    if _repeats_its_name(match) or _begins_a_sentence(match):
        return False
    return next(is_secret(match) for applies, is_secret in _ASSIGNED if applies(match))


def _name(match: re.Match[str]) -> str:
    return match["name"].lower()


def _quote(match: re.Match[str]) -> str | None:
    return match["quote"] or match["escaped"]


def _owner(match: re.Match[str]) -> re.Match[str] | None:
    """Return the word before a name that says whose it is, as `api` in `api_key`."""
    return _OWNER.search(_before(match))


def _is_rest_of_expression(match: re.Match[str]) -> bool:
    """Return True for a quoted value that goes on as code: `"password='" + value + "'"`."""
    value = _value(match)
    return bool(
        _quote(match) and re.search(r"[\"'`]", value) and re.search(r"\s|^[\"'`+]|[\"'`+]$", value)
    )


_ONE_CASE = late_pattern(r"([a-z_.-]+|[A-Z_.-]+)\d{0,3}")
"""Words in one case, with a running number at most."""


def _repeats_its_name(match: re.Match[str]) -> bool:
    """Return True for a quoted stand-in that ends in the name that it stands under, such as
    `"my_secret_key"` and `"password123"`.
    """
    words = _ONE_CASE.fullmatch(_value(match)) if _quote(match) else None
    if words is None:
        return False
    owner = _owner(match) if _name(match) in ("key", "token") else None
    name = f"{owner[0] if owner else ''}{match['name']}"
    return re.sub(r"[\W_]", "", words[1]).lower().endswith(re.sub(r"[\W_]", "", name).lower())


def _begins_a_sentence(match: re.Match[str]) -> bool:
    """Return True for prose after a colon: `SECRET_KEY: Your secret key`."""
    text, start, end = match.string, match.start("secret"), match.end("secret")
    return (
        not _quote(match)
        and "=" not in text[match.end("name") : start]
        and _SENTENCE.match(text, start, end + 3) is not None
    )


_SENTENCE = late_pattern(r"[A-Z][a-z]+ [a-z]{2}")


def _is_folder(match: re.Match[str]) -> bool:
    return _name(match) == "pwd" and _FOLDER.match(_value(match)) is not None


def _is_bare_key(match: re.Match[str]) -> bool:
    return _name(match) == "auth" or (_name(match) == "key" and not _owner(match))


def _is_long_cookie_of_variable(match: re.Match[str]) -> bool:
    is_variable = match["name"].isupper() and re.search(r"[A-Z0-9]_$", _before(match))
    return bool(is_variable) and is_cookie(match) and len(_value(match)) >= 16


def _is_bare_token(match: re.Match[str]) -> bool:
    return _name(match) == "token" and not _owner(match)


def _is_mixed_token(match: re.Match[str]) -> bool:
    value = _value(match)
    return (
        not _PAGE.search(_before(match))
        and len(value) >= 12
        and _has_letters_and_digits(value)
        and bool(_quote(match) or not _DOTTED.fullmatch(value))
    )


def _is_short_name(match: re.Match[str]) -> bool:
    is_constant = match["name"].isupper() and re.search(r"(?:^|[\s_'\"])$", _before(match))
    return _name(match) in ("pass", "pw", "psw") and not is_constant


def _is_chosen_word(match: re.Match[str]) -> bool:
    is_own_word = not _before(match)[-1:].isalnum()
    return is_own_word and is_chosen(match) and not re.search(r"\s", _value(match))


def _is_quoted_or_constant(match: re.Match[str]) -> bool:
    owner = _owner(match)
    is_constant = match["name"].isupper() and (not owner or owner[0].isupper())
    return bool(_quote(match)) or (is_constant and " " not in (owner or " ")[0])


def _is_code(match: re.Match[str]) -> bool:
    """Return True for `password=password`, `secret: str` and `api_key=get_key()`."""
    value = _value(match)
    return bool(_EXPRESSION.fullmatch(value) or _DOTTED.fullmatch(value))


def _is_dotted_password(match: re.Match[str]) -> bool:
    """Return True for a password in the form of code, such as `winter.a1B2`."""
    is_password = _name(match).startswith("passw") and is_chosen(match)
    return is_password and bool(_WORD_AND_DIGITS.fullmatch(_value(match)))


def _is_no_plain_word(match: re.Match[str]) -> bool:
    value = _value(match)
    return len(value) >= 6 and (_has_letters_and_digits(value) or not value.isalnum())


_ASSIGNED: tuple[tuple[Callable[[re.Match[str]], bool], Callable[[re.Match[str]], bool]], ...] = (
    (_is_folder, lambda _: False),
    (_is_bare_key, _is_long_cookie_of_variable),
    (_is_bare_token, _is_mixed_token),
    (_is_short_name, _is_chosen_word),
    (_is_quoted_or_constant, lambda match: len(_value(match)) >= 4),
    (_is_code, _is_dotted_password),
    (lambda _: True, _is_no_plain_word),
)
"""Kinds of assignments, each with the check of its value; the first kind that applies decides."""


def is_url_key(match: re.Match[str]) -> bool:
    """Return True if the value of a key in a URL has letters and digits."""
    return _has_letters_and_digits(_value(match))


def is_bearer(match: re.Match[str]) -> bool:
    """Return True if what follows `Bearer` is a token and no word."""
    value = match["secret"]
    return len(value) >= 32 or any(char.isdigit() for char in value)


def is_url_password(match: re.Match[str]) -> bool:
    """Return True if a URL has a password, and not a port before a path with `@`."""
    value = _value(match)
    return (
        bool(value) and not _NOT_A_SECRET.fullmatch(value) and not re.match(r"\d{1,5}[/?]", value)
    )


Check = Callable[[re.Match[str]], bool]


# A credential may follow a line end that JSON has escaped (`\n`) or a character that a URL has
# (`%3D`).
ESCAPED = r"(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})"
BEGINNING = rf"(?:(?<![A-Za-z0-9])|{ESCAPED})"
"""What begins the form of a token: nothing of the text is part of it before."""


@dataclass(frozen=True)
class Rule:
    """One kind of thing to redact."""

    kind: str
    """The name in the placeholder: lower-case letters, digits and underscores."""
    form: re.Pattern[str] | str
    """The pattern, which redacts the group `secret` where it has one, else all of it. Quantifiers
    must be bounded. A text is in ASCII, and compiled when the rule first runs: in a process that
    ends soon most never do.
    """
    keywords: tuple[str, ...] = ()
    """The pattern runs only where one of these occurs, case aside; lower-case. Empty: it always
    runs.
    """
    check: Check | None = None
    """Confirms a match: checksums, lengths, placeholders."""
    certain: bool = False
    """True if its form alone is proof: redacted even in fields that contain ids."""
    anchors: tuple[str, ...] = ()
    """The pattern is tried only where one of these begins, case aside, which is many times as fast
    as a search; lower-case. Empty: it is searched for.
    """
    needs: tuple[str, ...] = ()
    """Words of which one must occur beside a keyword; lower-case. Empty: none."""

    def __post_init__(self) -> None:
        for name in ("keywords", "anchors", "needs"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def begins(self) -> bool:
        """True if its keywords stand at the beginning of what it finds, behind no letter or
        digit.
        """
        return (
            bool(self.anchors)
            and self.anchors == self.keywords
            and isinstance(self.form, str)
            and self.form.startswith(BEGINNING)
        )

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The form, compiled."""
        return re.compile(self.form, re.ASCII) if isinstance(self.form, str) else self.form


def rule_of(
    kind: str, pattern: str, *keywords: str, check: Check | None = None, certain: bool = True
) -> Rule:
    """Return the rule of a form in ASCII."""
    words = tuple(word.lower() for word in keywords)
    return Rule(kind, pattern, words, check, certain)
