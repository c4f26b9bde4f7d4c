"""Rules for secrets and personal data: their forms in text, and checks against lookalikes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PII_RULES", "PLACEHOLDER", "SECRET_RULES", "Rule", "names_a_secret"]

PLACEHOLDER = re.compile(r"\[redacted:([a-z0-9_]{1,40}):(\d{1,9})\]")
"""The text that stands in for what was redacted: its kind and its number."""

Check = Callable[[re.Match[str]], bool]


@dataclass(frozen=True)
class Rule:
    """One kind of thing to redact."""

    kind: str
    """The name in the placeholder: lower-case letters, digits and underscores."""
    pattern: re.Pattern[str]
    """Redacts the group `secret` where the pattern has one, else all of it. Quantifiers must be
    bounded.
    """
    keywords: tuple[str, ...] = ()
    """The pattern runs only where one of these occurs, case aside; lower-case. Empty: it always
    runs.
    """
    check: Check | None = None
    """Confirms a match: checksums, lengths, placeholders."""
    certain: bool = False
    """True if its form alone is proof: redacted even in fields that contain ids."""


_STRONG_KEY = re.compile(
    r"(?:^|[_.-])(?:(?:passw(?:or)?d|passphrase|api_?key|access_?key|auth_?key|private_?key|signing_?key"
    r"|encryption_?key)s?|passwort|pwd|secret|secretkey|client_?secret|secret_?access_?key|access_?token|auth_?token"
    r"|refresh_?token|id_?token|bearer_?token|api_?token|session_?token|authorization|proxy_?authorization|cookie"
    r"|set_?cookie|connection_?string|credentials?)$"
)
_WEAK_KEY = re.compile(r"(?<!page)(?<!next)(?<!sync)(?:^|[_.-])token$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_A_SECRET = re.compile(
    r"""[$%]?\{.*|\$\(.*|\$\w+|%\w+%|<.*|\[.*|\(.*|[*x•.#_-]+|none|null|nil|true|false|undefined"""
    r"""|required|optional|string|str|text|password|passwd|secret|token|example|changeme|your[_-].*|empty|unset|hidden|include|omit|same-origin
    """
    r"""|os\.(?:environ|getenv).*|process\.env.*|getenv.*|env\..*|self\..*|settings\..*|config\..*|secrets\..*""",
    re.IGNORECASE | re.DOTALL,
)
_EXPRESSION = re.compile(r"[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]+)*(?:[(\[].*)?", re.DOTALL)

_FOLDER = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
"""The beginning of a folder: shells keep the working one in `PWD`."""
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


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
    return (
        bool(_WEAK_KEY.search(name))
        and len(value) >= 16
        and _has_letters_and_digits(value)
        and not re.search(r"\s", value)
    )


def _has_letters_and_digits(value: str) -> bool:
    """Return True if a value has both letters and digits, as generated secrets have and words have
    not.
    """
    return any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


def _is_assigned_secret(match: re.Match[str]) -> bool:
    """Return True if the assigned value is a secret, and not code, prose or a placeholder."""
    value, name = PLACEHOLDER.sub("", match["secret"]), match["name"]
    if not value.strip() or _NOT_A_SECRET.fullmatch(value):
        return False
    if name.lower() == "pwd" and _FOLDER.match(value):
        return False
    if name.lower() == "token":
        return (
            len(value) >= 12
            and _has_letters_and_digits(value)
            and bool(match["quote"] or not _DOTTED.fullmatch(value))
        )
    if match["quote"] or name.isupper():
        return len(value) >= 4
    if _EXPRESSION.fullmatch(value) or _DOTTED.fullmatch(value):
        return False  # `password=password`, `secret: str`, `api_key=get_key()`
    return len(value) >= 6 and (_has_letters_and_digits(value) or not value.isalnum())


def _bearer(match: re.Match[str]) -> bool:
    value = match["secret"]
    return len(value) >= 32 or any(char.isdigit() for char in value)


def _url_password(match: re.Match[str]) -> bool:
    value = PLACEHOLDER.sub("", match["secret"])
    return bool(value) and not _NOT_A_SECRET.fullmatch(value)


def _url_key(match: re.Match[str]) -> bool:
    return _has_letters_and_digits(PLACEHOLDER.sub("", match["secret"]))


# Checks of personal data


def _card(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match.group())
    return bool(_CARD_FORM.fullmatch(digits)) and _luhn(digits)


_CARD_FORM = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}|3(?:0[0-5]|[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}"
)


def _luhn(digits: str) -> bool:
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _iban(match: re.Match[str]) -> bool:
    compact = match.group().replace(" ", "")
    if len(compact) != _IBAN_LENGTH.get(compact[:2]):
        return False
    return int("".join(str(int(char, 36)) for char in compact[4:] + compact[:4])) % 97 == 1


_IBAN_LENGTH = {
    "AD": 24,
    "AE": 23,
    "AL": 28,
    "AT": 20,
    "AZ": 28,
    "BA": 20,
    "BE": 16,
    "BG": 22,
    "BH": 22,
    "BR": 29,
    "CH": 21,
    "CR": 22,
    "CY": 28,
    "CZ": 24,
    "DE": 22,
    "DK": 18,
    "DO": 28,
    "EE": 20,
    "ES": 24,
    "FI": 18,
    "FO": 18,
    "FR": 27,
    "GB": 22,
    "GE": 22,
    "GI": 23,
    "GL": 18,
    "GR": 27,
    "GT": 28,
    "HR": 21,
    "HU": 28,
    "IE": 22,
    "IL": 23,
    "IS": 26,
    "IT": 27,
    "JO": 30,
    "KW": 30,
    "KZ": 20,
    "LB": 28,
    "LI": 21,
    "LT": 20,
    "LU": 20,
    "LV": 21,
    "MC": 27,
    "MD": 24,
    "ME": 22,
    "MK": 19,
    "MT": 31,
    "MU": 30,
    "NL": 18,
    "NO": 15,
    "PK": 24,
    "PL": 28,
    "PS": 29,
    "PT": 25,
    "QA": 29,
    "RO": 24,
    "RS": 22,
    "SA": 24,
    "SE": 24,
    "SI": 19,
    "SK": 24,
    "SM": 27,
    "TN": 24,
    "TR": 26,
    "UA": 29,
    "XK": 20,
}
_IBAN_PATTERN = "|".join(
    rf"{country}\d\d(?: ?[A-Z0-9]){{{length - 4}}}"
    for country, length in sorted(_IBAN_LENGTH.items())
)


def _phone(match: re.Match[str]) -> bool:
    return 8 <= sum(char.isdigit() for char in match.group()) <= 15


def _address(match: re.Match[str]) -> bool:
    parts = [int(part) for part in match.group().split(".")]
    return all(part <= 255 for part in parts) and parts[0] not in (0, 127)


# The table


def _rule(
    kind: str, pattern: str, *keywords: str, check: Check | None = None, certain: bool = True
) -> Rule:
    return Rule(
        kind,
        re.compile(pattern, re.ASCII),
        tuple(word.lower() for word in keywords),
        check,
        certain,
    )


# A credential may follow a line end that JSON has escaped (`\n`) or a character that a URL has
# (`%3D`).
_ESCAPED = r"(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})"
_B, _E = rf"(?:(?<![A-Za-z0-9])|{_ESCAPED})", r"(?![A-Za-z0-9])"
_GITLAB = tuple(
    f"gl{kind}-" for kind in ("pat", "dt", "ptt", "rt", "cbt", "oas", "soat", "ft", "imt", "agent")
)
_KEY_BLOCK = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

SECRET_RULES: tuple[Rule, ...] = (
    _rule(
        "private_key",
        rf"{_KEY_BLOCK}(?:(?:[A-Za-z0-9+/=\s\\:,.]|-(?!-)){{16,20000}}-----END [A-Z0-9 "
        rf"]{{0,40}}PRIVATE KEY"
        r"(?: BLOCK)?-----"
        rf"|(?:\s|\\[nr]){{0,8}}(?:[A-Za-z0-9+/=]{{16,200}}+(?:\s|\\[nr]){{0,8}}){{1,400}})",
        "private key",
    ),
    _rule(
        "aws_access_key_id",
        rf"{_B}(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{{16}}{_E}",
        "akia",
        "asia",
        "abia",
        "acca",
    ),
    _rule(
        "github_token",
        rf"{_B}gh[pousr]_[A-Za-z0-9]{{36,255}}{_E}",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
    ),
    _rule("github_token", rf"{_B}github_pat_[A-Za-z0-9_]{{36,255}}{_E}", "github_pat_"),
    _rule(
        "gitlab_token",
        rf"{_B}gl(?:pat|dt|ptt|rt|cbt|oas|soat|ft|imt|agent)-[\w.-]{{19,300}}\w",
        *_GITLAB,
    ),
    _rule("slack_token", rf"{_B}xox[abceoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{{10,250}}", "xox"),
    _rule("slack_token", rf"{_B}xapp-\d-[A-Za-z0-9-]{{20,250}}", "xapp-"),
    _rule(
        "slack_webhook",
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/+_-]{20,200})",
        "hooks.slack.com",
    ),
    _rule("anthropic_key", rf"{_B}sk-ant-[a-z0-9]{{2,12}}-[\w-]{{20,250}}", "sk-ant-"),
    _rule("openai_key", rf"{_B}sk-(?:proj|svcacct|admin|None)-[\w-]{{20,300}}", "sk-"),
    _rule("openai_key", rf"{_B}sk-[A-Za-z0-9]{{32,100}}{_E}", "sk-"),
    _rule("openrouter_key", rf"{_B}sk-or-v1-[a-f0-9]{{64}}{_E}", "sk-or-"),
    _rule("google_key", rf"{_B}AIza[\w-]{{35}}(?![\w-])", "aiza"),
    _rule("google_token", rf"{_B}ya29\.[\w-]{{20,1000}}", "ya29."),
    _rule("google_secret", rf"{_B}GOCSPX-[\w-]{{28}}(?![\w-])", "gocspx-"),
    _rule(
        "stripe_key", rf"{_B}[rs]k_(?:live|test)_[A-Za-z0-9]{{16,250}}{_E}", "k_live_", "k_test_"
    ),
    _rule("stripe_key", rf"{_B}whsec_[A-Za-z0-9+/]{{24,100}}={{0,2}}", "whsec_"),
    _rule(
        "jwt",
        rf"(?:(?<![\w-])|{_ESCAPED})eyJ[\w-]{{8,4000}}+\.eyJ[\w-]{{8,16000}}+\.[\w-]{{16,2000}}",
        "eyj",
    ),
    _rule("npm_token", rf"{_B}npm_[A-Za-z0-9]{{36}}{_E}", "npm_"),
    _rule("pypi_token", rf"{_B}pypi-AgE[\w-]{{50,500}}", "pypi-age"),
    _rule(
        "huggingface_token",
        rf"{_B}(?:hf_[A-Za-z]{{34}}|api_org_[A-Za-z]{{34}}){_E}",
        "hf_",
        "api_org_",
    ),
    _rule("sendgrid_key", rf"{_B}SG\.[\w-]{{22}}\.[\w-]{{43}}(?![\w-])", "sg."),
    _rule("digitalocean_token", rf"{_B}do[opr]_v1_[a-f0-9]{{64}}{_E}", "_v1_"),
    _rule("shopify_token", rf"{_B}shp(?:at|ca|pa|ss)_[a-fA-F0-9]{{32}}{_E}", "shp"),
    _rule("groq_key", rf"{_B}gsk_[A-Za-z0-9]{{52}}{_E}", "gsk_"),
    _rule("xai_key", rf"{_B}xai-[A-Za-z0-9]{{70,100}}{_E}", "xai-"),
    _rule("perplexity_key", rf"{_B}pplx-[A-Za-z0-9]{{48}}{_E}", "pplx-"),
    _rule("replicate_token", rf"{_B}r8_[A-Za-z0-9]{{37}}{_E}", "r8_"),
    _rule("nvidia_key", rf"{_B}nvapi-[\w-]{{60,70}}(?![\w-])", "nvapi-"),
    _rule("langsmith_key", rf"{_B}lsv2_(?:pt|sk)_[a-f0-9]{{32}}_[a-f0-9]{{10}}{_E}", "lsv2_"),
    _rule("databricks_token", rf"{_B}dapi[a-f0-9]{{32}}(?:-\d)?{_E}", "dapi"),
    _rule("vault_token", rf"{_B}hv[bsr]\.[\w-]{{24,300}}", "hvs.", "hvb.", "hvr."),
    _rule("linear_key", rf"{_B}lin_api_[A-Za-z0-9]{{40}}{_E}", "lin_api_"),
    _rule("notion_token", rf"{_B}ntn_[A-Za-z0-9]{{40,60}}{_E}", "ntn_"),
    _rule("atlassian_token", rf"{_B}ATATT3[\w=-]{{50,300}}", "atatt3"),
    _rule("telegram_token", rf"{_B}\d{{8,10}}:AA[\w-]{{33}}(?![\w-])", ":aa"),
    _rule("age_key", rf"{_B}AGE-SECRET-KEY-1[A-Z0-9]{{58}}{_E}", "age-secret-key-"),
    _rule(
        "bearer_token",
        r"(?<![A-Za-z])[Bb](?:earer|EARER)[ \t]{1,4}(?P<secret>[\w.~+/-]{16,4096}+={0,2})",
        "bearer",
        check=_bearer,
        certain=False,
    ),
    _rule(
        "basic_auth",
        r"(?<![A-Za-z])(?i:authorization)\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?i:basic)[ "
        r"\t]{1,4}"
        r"(?P<secret>[A-Za-z0-9+/]{8,1024}+={0,2})",
        "authorization",
        certain=False,
    ),
    _rule(
        "url_password",
        r"(?<=://)[^\s:/@\"'<>]{0,128}+:(?P<secret>[^\s/\"'<>]{1,256})(?=@)",
        "://",
        check=_url_password,
        certain=False,
    ),
    _rule(
        "url_key",
        r"(?<=[?&])(?i:key|sig|(?:x-amz-|x-goog-)?signature)=(?P<secret>[^\s&#\"'`<>\\]{16,1024})",
        "key",
        "sig=",
        "signature=",
        check=_url_key,
        certain=False,
    ),
    _rule(
        "credential",
        r"(?P<name>(?i:passw(?:or)?d|passphrase|pwd|secret(?:[_-]?access)?[_-]?key|api[_-]?(?:key|token)|access[_-]?(?:key|token)"
        r"|auth[_-]?(?:key|token)|refresh[_-]?token|session[_-]?token|client[_-]?secret|private[_-]?key|signing[_-]?key"
        r"|encryption[_-]?key|account[_-]?key|secret|(?<!page)(?<!page[_-])(?<!next)(?<!next[_-])(?<!sync[_-])token))"
        r"(?:\\{0,3}[\"'`])?[ \t]{0,3}(?::=|=>|==|[:=])[ \t]{0,3}"
        r"(?:\\{0,3}[bBrRfF]{0,2}(?P<quote>[\"'`])(?P<quoted>)|(?P<bare>))"
        r"(?P<secret>(?(quoted)[^\"'`\\\r\n]{4,256}|[^\s\"'`,;&<>\\(){}\[\]]{4,256}))",
        "passw",
        "passphrase",
        "pwd",
        "secret",
        "key",
        "token",
        check=_is_assigned_secret,
        certain=False,
    ),
    _rule(
        "credential",
        r"(?<![\w-])--(?P<name>password|passwd|token|secret|api-key|access-key"
        r"|auth-token|client-secret)[ =]"
        r"(?P<quote>[\"']?)(?P<secret>[^\s\"'`<>-][^\s\"'`<>]{3,255})",
        "--pass",
        "--token",
        "--secret",
        "--api-key",
        "--access-key",
        "--auth-token",
        "--client-secret",
        check=_is_assigned_secret,
        certain=False,
    ),
)
"""Secrets by their form, most certain first."""

PII_RULES: tuple[Rule, ...] = (
    _rule(
        "email",
        r"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
        "@",
        certain=False,
    ),
    _rule(
        "credit_card", r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w-]|\.\d)", check=_card, certain=False
    ),
    _rule(
        "iban", rf"(?<![A-Za-z0-9])(?:{_IBAN_PATTERN})(?![A-Za-z0-9])", check=_iban, certain=False
    ),
    _rule(
        "us_ssn",
        r"(?<![\w.-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-]|\.\d)",
        "-",
        certain=False,
    ),
    _rule(
        "phone",
        r"(?<![\w.+-])\+[1-9]\d{0,2}(?:[ .-]?\(\d{1,4}\))?(?:[ .-]?\d{2,5}){2,5}(?![\w]|[.-]\d)",
        "+",
        check=_phone,
        certain=False,
    ),
    _rule(
        "phone",
        r"(?<![\w.+-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-]|\.\d)",
        check=_phone,
        certain=False,
    ),
    _rule(
        "ip_address",
        r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)",
        ".",
        check=_address,
        certain=False,
    ),
)
"""Personal data by its form; off by default."""
