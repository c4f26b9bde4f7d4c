"""Rules for personal data, by its form and by checksums."""

from __future__ import annotations

import re

from tallystick.policy.secret_checks import Rule, rule_of


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


PII_RULES: tuple[Rule, ...] = (
    rule_of(
        "email",
        r"(?<![\w.%+-])[A-Za-z0-9._%+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
        "@",
        certain=False,
    ),
    rule_of(
        "credit_card", r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w-]|\.\d)", check=_card, certain=False
    ),
    rule_of(
        "iban", rf"(?<![A-Za-z0-9])(?:{_IBAN_PATTERN})(?![A-Za-z0-9])", check=_iban, certain=False
    ),
    rule_of(
        "us_ssn",
        r"(?<![\w.-])(?!000|666|9\d\d)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?![\w-]|\.\d)",
        "-",
        certain=False,
    ),
    rule_of(
        "phone",
        r"(?<![\w.+-])\+[1-9]\d{0,2}(?:[ .-]?\(\d{1,4}\))?(?:[ .-]?\d{2,5}){2,5}(?![\w]|[.-]\d)",
        "+",
        check=_phone,
        certain=False,
    ),
    rule_of(
        "phone",
        r"(?<![\w.+-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-]|\.\d)",
        check=_phone,
        certain=False,
    ),
    rule_of(
        "ip_address",
        r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)",
        ".",
        check=_address,
        certain=False,
    ),
)
"""Personal data by its form; off by default."""
