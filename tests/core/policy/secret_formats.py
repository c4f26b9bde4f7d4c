"""Formats in which people really have secrets: where each stands, and the form of its value.

The values are drawn anew from a seed; none is real. In a template, `{s}` is the secret, and the
form after it is text with classes and counts of a regular expression: `ghp_[A-Za-z0-9]{36}`.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
from collections.abc import Callable
from typing import NamedTuple

_PIECE = re.compile(r"\[(?P<signs>[^\]]+)\](?:\{(?P<count>\d+)\})?|(?P<plain>.)", re.DOTALL)
_RANGE = re.compile(r"(.)-(.)")
_PLACEHOLDER = re.compile(r"\[redacted:[a-z0-9_]+:\d+\]")
HEX = "[0-9a-f]"
WORD = "[A-Za-z0-9]"
URL_SAFE = "[A-Za-z0-9_-]"
UUID = f"{HEX}{{8}}-{HEX}{{4}}-4{HEX}{{3}}-a{HEX}{{3}}-{HEX}{{12}}"


class Format(NamedTuple):
    """A place that holds a secret."""

    family: str
    template: str
    """The text around the secret, which is `{s}`."""
    form: str
    """The form of the secret: `password`, `words` and names in `_MAKERS`, or a pattern."""


class Sample(NamedTuple):
    """A text with a secret."""

    text: str
    secret: str


def drawn(entry: Format, seed: int) -> Sample:
    """Return a text in this format, with a value that is drawn from a seed."""
    chance = random.Random(f"{entry.template}{entry.form}{seed}")
    make = _MAKERS.get(entry.form)
    secret = make(chance) if make else _from_pattern(entry.form, chance)
    shown = secret
    if "{zero}" in entry.template:
        half = len(secret) // 2
        shown = f"{secret[:half]}\u200b{secret[half:]}"
    elif "{cut}" in entry.template:
        half = len(secret) // 2
        shown = f"{secret[:half]}\n  {secret[half:]}"
    elif "{wrapped}" in entry.template:
        shown = secret = base64.b64encode(secret.encode()).decode()
    text = re.sub(r"\{(?:s|zero|cut|wrapped)\}", lambda _: shown, entry.template)
    return Sample(text, secret)


def is_whole(redacted: str, secret: str) -> bool:
    """Return True if no run of six characters of the secret is left in a text."""
    left = _PLACEHOLDER.sub("\0", redacted)
    return not any(secret[at : at + 6] in left for at in range(max(1, len(secret) - 5)))


PLACES: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "after a line of prose": lambda text: f"Here is what you asked for:\n{text}\nThanks!",
    "indented": lambda text: "\n".join(f"    {line}" for line in text.splitlines()),
    "in a fence": lambda text: f"Run this:\n\n```\n{text}\n```\n",
    "lines of Windows": lambda text: f"# settings\r\n{text}\r\n".replace("\n", "\r\n"),
    "JSON in a text": lambda text: json.dumps({"output": f"ok\n{text}\nend"}, ensure_ascii=False),
}
"""What surrounds a format in a message, a file or the answer of a tool."""


def shown_in(place: str, sample: Sample) -> Sample:
    """Return a sample in one of the places, with the secret as it is written there."""
    secret = sample.secret
    if place == "JSON in a text":
        secret = json.dumps(secret, ensure_ascii=False)[1:-1]
    elif place == "lines of Windows":
        secret = secret.replace("\n", "\r\n")
    return Sample(PLACES[place](sample.text), secret)


def _from_pattern(form: str, chance: random.Random) -> str:
    drawn_pieces = []
    for piece in _PIECE.finditer(form):
        if piece["plain"]:
            drawn_pieces.append(piece["plain"])
            continue
        signs = _RANGE.sub(
            lambda ends: "".join(map(chr, range(ord(ends[1]), ord(ends[2]) + 1))), piece["signs"]
        )
        drawn_pieces.append("".join(chance.choices(signs, k=int(piece["count"] or 1))))
    return "".join(drawn_pieces)


def _password(chance: random.Random) -> str:
    """Return a password as people choose them: a word, digits, a sign or two."""
    word = chance.choice(["Tr0ub4dor", "winter", "Kestrel", "qwert", "Zx9m", "blueHeron", "lisbon"])
    return word + chance.choice("!#_.-+*~^") + _from_pattern("[a-zA-Z0-9]{5}[0-9]", chance)


def _odd_password(chance: random.Random) -> str:
    return _from_pattern("[a-zA-Z0-9]{3}[/?#%][A-Za-z0-9]{3}[/!$*][a-z0-9]{4}", chance)


def _words(chance: random.Random) -> str:
    """Return a password of letters alone."""
    words = ["swordfish", "correct", "horse", "battery", "staple", "marmalade", "zeppelin"]
    return "".join(chance.sample(words, 2))


def _basic(chance: random.Random) -> str:
    return base64.b64encode(f"deploy:{_password(chance)}".encode()).decode()


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(chance: random.Random) -> str:
    body = {"sub": _from_pattern("[a-z]{8}", chance), "iat": 1700000000}
    return (
        f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part(body)}."
        f"{_from_pattern(URL_SAFE + '{43}', chance)}"
    )


def _jwe(chance: random.Random) -> str:
    head = _part({"alg": "dir", "enc": "A256GCM"})
    return _from_pattern(f"{head}..{URL_SAFE}{{16}}.{URL_SAFE}{{90}}.{URL_SAFE}{{22}}", chance)


def _lines(chance: random.Random, count: int = 4) -> str:
    return "\n".join(_from_pattern("[A-Za-z0-9+/]{64}", chance) for _ in range(count))


def _encoded_pem(chance: random.Random) -> str:
    block = f"-----BEGIN PRIVATE KEY-----\n{_lines(chance)}\n-----END PRIVATE KEY-----\n"
    return base64.b64encode(block.encode()).decode()


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "password": _password,
    "odd password": _odd_password,
    "words": _words,
    "basic": _basic,
    "jwt": _jwt,
    "jwe": _jwe,
    "lines": _lines,
    "pem": _encoded_pem,
}

_KEY = f"{WORD}{{32}}"


def _family(name: str, *entries: tuple[str, str]) -> list[Format]:
    return [Format(name, template, form) for template, form in entries]


def _tokens(*forms: str) -> list[tuple[str, str]]:
    """Return each form in a sentence, a call or a setting of no telling name, by turns."""
    places = ("Use {s} for it.", 'client = Client("{s}")', "VALUE={s}", "see: {s}", "`{s}`")
    return [(places[at % len(places)], form) for at, form in enumerate(forms)]


FORMATS: tuple[Format, ...] = (
    *_family(
        "headers and cookies",
        ("Cookie: sessionid={s}; theme=dark", f"{WORD}{{32}}"),
        ("Set-Cookie: sid={s}; Path=/; HttpOnly", "s%3A[A-Za-z0-9_-]{32}.[A-Za-z0-9]{43}"),
        ("cookie: _gh_sess={s}", "[A-Za-z0-9%]{60}"),
        ('headers = {"Cookie": "PHPSESSID={s}"}', "[a-z0-9]{26}"),
        ("curl -b 'JSESSIONID={s}' https://shop.example/", "[0-9A-F]{32}"),
        ("Authorization: Bearer {s}", _KEY),
        ("Authorization: Token {s}", f"{HEX}{{40}}"),
        ("authorization: Basic {s}", "basic"),
        ("Proxy-Authorization: Basic {s}", "basic"),
        ("Authorization: ApiKey {s}", f"{WORD}{{44}}=="),
        ("X-Api-Key: {s}", _KEY),
        ("X-Auth-Token: {s}", f"{HEX}{{32}}"),
        ("PRIVATE-TOKEN: {s}", f"{WORD}{{20}}"),
        ("Ocp-Apim-Subscription-Key: {s}", f"{HEX}{{32}}"),
        ("DD-API-KEY: {s}", f"{HEX}{{32}}"),
        ("apikey: {s}", _KEY),
    ),
    *_family(
        "XML",
        ("<password>{s}</password>", "password"),
        ("<server><username>ci</username><password>{s}</password></server>", "words"),
        ('<wsse:Password Type="wsse:PasswordText">{s}</wsse:Password>', "password"),
        ("<apiKey>{s}</apiKey>", _KEY),
        ('<add key="DbPassword" value="{s}" />', "password"),
        ('<property name="hibernate.connection.password" value="{s}"/>', "password"),
        ('<string name="api_key">{s}</string>', _KEY),
        ('<add name="db" connectionString="Server=a;User Id=sa;Password={s};" />', "password"),
        ("<client-secret><![CDATA[{s}]]></client-secret>", "password"),
    ),
    *_family(
        "YAML, INI and properties",
        ("database:\n  user: app\n  password: {s}\n", "password"),
        ("db:\n  password: '{s}'", "words"),
        ("smtp_pass: {s}", "password"),
        ("- name: DB_PASSWORD\n  value: {s}", "password"),
        ("password: >-\n  {s}", "password"),
        ("data:\n  password: {s}", "basic"),
        ("client-key-data: {s}", "pem"),
        ("spring.datasource.password={s}", "words"),
        ("[client]\nuser=root\npassword={s}", "password"),
        ("signing.keyPassword = {s}", "password"),
        ("PrivateKey = {s}", "[A-Za-z0-9+/]{43}="),
        ("requirepass {s}", "password"),
        ("bindpw {s}", "password"),
        ("[default]\naws_secret_access_key = {s}", "[A-Za-z0-9/+]{40}"),
        ('db_password = "{s}"', "password"),
        ("rabbitmq.default_pass = {s}", "password"),
        ("secret_key_base: {s}", f"{HEX}{{64}}"),
    ),
    *_family(
        "environment",
        ("export DB_PASS={s}", "password"),
        ("export X_PASS='{s}'", "words"),
        ("POSTGRES_PASSWORD={s}", "words"),
        ("set SMTP_PASSWORD={s}", "password"),
        ('$env:API_KEY = "{s}"', _KEY),
        ("ENV APP_SECRET={s}", "password"),
        ("setx DB_PASSWORD {s}", "password"),
        ("set -x GITHUB_TOKEN {s}", f"{HEX}{{40}}"),
        ("APP_KEY=base64:{s}", "[A-Za-z0-9+/]{43}="),
        ("STRIPE_KEY={s}", f"{WORD}{{32}}"),
        ("RAILS_MASTER_KEY={s}", f"{HEX}{{32}}"),
        ('os.environ["DB_PASSWORD"] = "{s}"', "password"),
        ("DB_PASS={s}", "[a-z0-9]{3}&[A-Z0-9]{3}([a-z0-9]{4}),x1"),
        ("docker run -e MYSQL_ROOT_PASSWORD={s} mysql", "words"),
        ("TWILIO_AUTH_TOKEN={s}", f"{HEX}{{32}}"),
    ),
    *_family(
        "command lines",
        ("curl -u admin:{s} https://api.example/v1", "password"),
        ("curl --user 'admin:{s}' https://api.example/v1", "password"),
        ("mysql -u root -p{s} shop", "password"),
        ("mysqldump --user=root --password={s} shop", "words"),
        ("deploy --api_key {s}", _KEY),
        ("deploy --api-key={s}", _KEY),
        ("tool --db-password {s} --force", "password"),
        ("sshpass -p {s} ssh root@host", "password"),
        ("sshpass -p '{s}' ssh root@host", "words"),
        ("redis-cli -h cache -a {s} ping", "password"),
        ("docker login -u ci -p {s} registry.example", "password"),
        ("az login --service-principal -u app -p {s} --tenant t", "password"),
        ("ldapsearch -x -D cn=admin -w {s} -b dc=example", "password"),
        ("keytool -list -keystore a.jks -storepass {s}", "words"),
        ("openssl rsa -in key.pem -passin pass:{s}", "password"),
        ("sqlcmd -S host -U sa -P {s} -Q q", "password"),
        ("wget --http-password={s} https://files.example/a", "words"),
        ("htpasswd -b /etc/nginx/users ada {s}", "password"),
        ("smbclient //srv/share -U ada%{s}", "password"),
        ("echo 'root:{s}' | chpasswd", "password"),
        ("PGPASSWORD={s} psql -h db", "words"),
        ("vault login -token={s}", f"s.{WORD}{{24}}"),
    ),
    *_family(
        "files of tools",
        ("machine api.example login ada password {s}", "password"),
        ("machine git.example\n  login ada\n  password {s}", "words"),
        ("_auth={s}", "basic"),
        ("//registry.example/:_authToken={s}", UUID),
        ("//registry.example/:_password={s}", "[A-Za-z0-9+/]{19}="),
        ('{"auths": {"registry.example": {"auth": "{s}"}}}', "basic"),
        ('{"identitytoken": "{s}"}', "[A-Za-z0-9_-]{64}"),
        ("db.example:5432:shop:app:{s}", "password"),
        ("https://ada:{s}@git.example", "password"),
        ("root:{s}:19000:0:99999:7:::", "$6$[A-Za-z0-9./]{16}$[A-Za-z0-9./]{86}"),
        ("ada:{s}", "$2b$12$[A-Za-z0-9./]{53}"),
        ("define('DB_PASSWORD', '{s}');", "password"),
        ("npmAuthToken: {s}", f"{HEX}{{40}}"),
        ("index-url = https://ci:{s}@pypi.example/simple", "password"),
        ("WIFI:T:WPA;S:home;P:{s};;", "words"),
        ('{"name": "DB_PASSWORD", "value": "{s}"}', "words"),
        ("otpauth://totp/Shop:ada?secret={s}&issuer=Shop", "[A-Z2-7]{32}"),
    ),
    *_family(
        "connection strings",
        ("postgresql://app:{s}@db:5432/orders", "password"),
        ("postgres://u:{s}@h", "odd password"),
        ("mysql://root:{s}@db.example/shop?ssl=true", "odd password"),
        ("mongodb+srv://ada:{s}@cluster0.example.net/?w=majority", "password"),
        ("redis://:{s}@cache:6379/0", "odd password"),
        ("app:{s}@tcp(db:3306)/shop?parseTime=true", "password"),
        ("app:{s}@tcp(127.0.0.1:3306)/shop", "odd password"),
        ("host=db user=app password={s} dbname=shop", "password"),
        ("Server=db;Database=shop;User Id=sa;Password={s};Encrypt=yes", "password"),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s}", "[A-Za-z0-9+/]{86}=="),
        ("Endpoint=sb://b.example/;SharedAccessKeyName=r;SharedAccessKey={s}", WORD + "{43}="),
        ("jdbc:oracle:thin:scott/{s}@db:1521:orcl", "password"),
        ("jdbc:mysql://db/shop?user=app&password={s}", "words"),
        ("sqlplus scott/{s}@db", "password"),
        ("https://{s}@o123.ingest.sentry.example/42", f"{HEX}{{32}}"),
        ("https://{s}@git.example/shop.git", f"{WORD}{{40}}"),
        ("amqp://guest:{s}@mq:5672/%2f", "password"),
        ("https://api.example/v1?access_token={s}&page=2", _KEY),
        ("https://api.example/v1?key={s}", _KEY),
    ),
    *_family(
        "code and SQL",
        ("CREATE USER app IDENTIFIED BY '{s}';", "words"),
        ("ALTER ROLE app WITH PASSWORD '{s}';", "words"),
        ("requests.get(url, auth=('ada', '{s}'))", "password"),
        ('smtp.login("ada@mail.example", "{s}")', "password"),
        ('builder.setPassword("{s}");', "password"),
        ('config.put("password", "{s}");', "password"),
        ('const apiKey = "{s}";', _KEY),
        ('"password" => "{s}",', "words"),
        ('{"password": "{s}"}', 'ab"[a-z0-9]{5}[0-9]'.replace('"', r"\"")),
        ("password='{s}'", '[a-z0-9]{4}"[A-Za-z0-9]{5}'),
        ('{"kty": "RSA", "n": "x", "d": "{s}"}', f"{URL_SAFE}{{86}}"),
        ('new Sequelize("shop", "app", "{s}")', "password"),
    ),
    *_family(
        "prose",
        ("The password is {s}", "password"),
        ("the password for staging is: {s}", "password"),
        ("My API key is {s}, keep it safe.", _KEY),
        ("Password: {s}", "password"),
        ("**Password:** {s}", "password"),
        ("| password | {s} |", "password"),
        ("pw: {s}", "password"),
        ("API key: {s}", _KEY),
        ("Das Passwort lautet {s}", "password"),
        ("密码是{s}。", "password"),
        ("пароль: {s}", "password"),
        ("Access token = {s}", _KEY),
        ("user ada, passphrase `{s}`", "password"),
    ),
    *_family(
        "tokens of clouds and code",
        *_tokens(
            "AKIA[A-Z2-7]{16}",
            "AROA[A-Z2-7]{16}",
            f"ghp_{WORD}{{36}}",
            f"github_pat_{WORD}{{22}}_{WORD}{{59}}",
            f"glpat-{URL_SAFE}{{19}}a",
            f"npm_{WORD}{{36}}",
            f"pypi-AgEIcHlwaS5vcmc{URL_SAFE}{{120}}",
            f"dckr_pat_{URL_SAFE}{{27}}",
            f"rubygems_{HEX}{{48}}",
            f"AIza{URL_SAFE}{{34}}x",
            f"ya29.{URL_SAFE}{{120}}",
            f"1//0{URL_SAFE}{{60}}",
            f"{WORD}{{3}}8Q~{WORD}{{34}}",
            f"dop_v1_{HEX}{{64}}",
            f"hvs.{WORD}{{90}}",
            f"{WORD}{{14}}.atlasv1.{WORD}{{67}}",
            f"pul-{HEX}{{40}}",
            f"dp.pt.{WORD}{{43}}",
            f"sbp_{HEX}{{40}}",
            f"sb_secret_{WORD}{{31}}",
            f"pscale_pw_{WORD}{{43}}",
            f"nfp_{WORD}{{36}}",
            f"HRKU-AA{WORD}{{58}}",
            f"bkua_{HEX}{{40}}",
            f"squ_{HEX}{{40}}",
            f"PMAK-{HEX}{{24}}-{HEX}{{34}}",
            f"ATATT3xFfGF0{WORD}{{170}}=[A-F0-9]{{8}}",
            f"LTAI5t{WORD}{{18}}",
        ),
    ),
    *_family(
        "tokens of models and agents",
        *_tokens(
            f"sk-proj-{WORD}{{74}}T3BlbkFJ{WORD}{{74}}",
            f"sk-ant-api03-{URL_SAFE}{{93}}AA",
            "hf_[A-Za-z]{34}",
            f"gsk_{WORD}{{52}}",
            f"pplx-{WORD}{{48}}",
            f"r8_{WORD}{{37}}",
            f"xai-{WORD}{{80}}",
            f"sk-or-v1-{HEX}{{64}}",
            f"pcsk_{WORD}{{5}}_{WORD}{{63}}",
            f"lsv2_pt_{HEX}{{32}}_{HEX}{{10}}",
            f"sk-lf-{UUID}",
            f"tvly-dev-{WORD}{{32}}",
            f"jina_{HEX}{{32}}{WORD}{{28}}",
            f"nvapi-{WORD}{{64}}",
        ),
    ),
    *_family(
        "tokens of services",
        *_tokens(
            "xoxb-[0-9]{12}-[0-9]{13}-" + WORD + "{24}",
            f"figd_{WORD}{{40}}",
            f"glsa_{WORD}{{32}}_{HEX}{{8}}",
            "NRAK-[A-Z0-9]{27}",
            f"SK{HEX}{{32}}",
            f"sq0atp-{WORD}{{22}}",
            f"EAAA{WORD}{{60}}",
            f"pat-na1-{UUID}",
            f"SG.{URL_SAFE}{{22}}.{URL_SAFE}{{42}}a",
            f"sk_live_{WORD}{{24}}",
            f"key-{HEX}{{32}}",
            f"{HEX}{{32}}-us14",
            f"xkeysib-{HEX}{{64}}-{WORD}{{16}}",
            f"re_{WORD}{{8}}_{WORD}{{24}}",
            f"shpat_{HEX}{{32}}",
            f"CFPAT-{WORD}{{43}}",
            f"sntrys_eyJpYXQi{WORD}{{90}}_{WORD}{{43}}",
            f"phx_{WORD}{{43}}",
            f"lin_api_{WORD}{{40}}",
            f"ntn_{WORD}{{46}}",
            f"access-production-{UUID}",
            f"rzp_live_{WORD}{{14}}",
        ),
        ("DISCORD_TOKEN: {s}", f"MTA{WORD}{{21}}.{WORD}{{6}}.{WORD}{{38}}"),
        ('bot.run("{s}")', f"MTE{WORD}{{23}}.{WORD}{{6}}.{WORD}{{27}}"),
        ("airtable: {s}", f"pat{WORD}{{14}}.{HEX}{{64}}"),
        ("https://api.telegram.org/bot{s}/getMe", f"[1-9]{{10}}:AA{WORD}{{33}}"),
        ("https://discord.com/api/webhooks/123456789012345678/{s}", f"{WORD}{{68}}"),
        ("https://hooks.slack.com/services/{s}", f"T[A-Z0-9]{{8}}/B[A-Z0-9]{{8}}/{WORD}{{24}}"),
    ),
    *_family(
        "keys and disguises",
        ("see {s}.", "jwt"),
        ("see {s}", "jwe"),
        ("-----BEGIN RSA PRIVATE KEY-----\n{s}\n-----END RSA PRIVATE KEY-----", "lines"),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{s}\n-----END PGP PRIVATE KEY BLOCK-----",
            "lines",
        ),
        (
            "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: k\nPublic-Lines: 1\nAAAA\n"
            f"Private-Lines: 4\n{{s}}\nPrivate-MAC: {'0a' * 20}",
            "lines",
        ),
        ("AGE-SECRET-KEY-1{s}", "[A-Z0-9]{58}"),
        ("token {zero} here", f"ghp_{WORD}{{36}}"),
        ("token {cut}", f"ghp_{WORD}{{30}}[0-9]{{6}}"),
        ("key:\n  {cut}\n", f"sk-ant-api03-{WORD}{{50}}[0-9]{WORD}{{42}}AA"),
        ("echo {wrapped} | base64 -d", f"ghp_{WORD}{{36}}"),
        ("echo {wrapped} | base64 -d", f"DB_PASSWORD={WORD}{{16}}"),
    ),
)
"""Every format of the list, by family."""

assert all(sign in string.printable for entry in FORMATS for sign in entry.form)
