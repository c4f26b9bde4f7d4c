"""Rules for secrets: their forms in text, and what they stand behind."""

from __future__ import annotations

import base64
import re

from tallystick.policy.secret_checks import (
    BEGINNING,
    ESCAPED,
    Check,
    Rule,
    is_assigned_secret,
    is_bearer,
    is_chosen,
    is_cookie,
    is_element,
    is_environment_secret,
    is_flag,
    is_generated,
    is_named_secret,
    is_not_a_number,
    is_property,
    is_stated_secret,
    is_url_key,
    is_url_password,
    is_user_and_password,
    is_written_out,
    rule_of,
)
from tallystick.policy.vendor_tokens import TOKENS_BY_PREFIX, TOKENS_BY_SHAPE


def _token(kind: str, pattern: str, *keywords: str, certain: bool = True) -> Rule:
    """Return the rule of a token that begins with one of its keywords."""
    words = tuple(word.lower() for word in keywords)
    return Rule(kind, pattern, words, None, certain, words)


def _context(
    kind: str,
    pattern: str,
    anchors: tuple[str, ...],
    *,
    keywords: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    check: Check | None = None,
) -> Rule:
    """Return the rule of a secret that is known by the text before it."""
    return Rule(kind, pattern, keywords or anchors, check, False, anchors, needs)


_B, _E = BEGINNING, r"(?![A-Za-z0-9])"
_GITLAB = tuple(
    f"gl{kind}-" for kind in ("pat", "dt", "ptt", "rt", "cbt", "oas", "soat", "ft", "imt", "agent")
)
_KEY_BLOCK = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

_COMMON = {"re_", "sk_", "pa-", "api-", "dp.", "sl.", "a3-", "bot.", "bot ", "login("}
"""Words of so many texts that a form behind them is looked for with the rules of contexts."""

_FORM_RULES: tuple[Rule, ...] = (
    _token(
        "private_key",
        rf"{_KEY_BLOCK}(?:(?:[A-Za-z0-9+/=\s\\:,.]|-(?!-)){{16,20000}}-----END [A-Z0-9 "
        rf"]{{0,40}}PRIVATE KEY"
        r"(?: BLOCK)?-----"
        rf"|(?:\s|\\[nr]){{0,8}}(?:[A-Za-z0-9+/=]{{16,200}}+(?:\s|\\[nr]){{0,8}}){{1,400}})",
        "-----begin",
    ),
    _token(
        "aws_access_key_id",
        rf"{_B}(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{{16}}{_E}",
        "akia",
        "asia",
        "abia",
        "acca",
    ),
    _token(
        "github_token",
        rf"{_B}gh[pousr]_[A-Za-z0-9]{{36,255}}{_E}",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
    ),
    _token("github_token", rf"{_B}github_pat_[A-Za-z0-9_]{{36,255}}{_E}", "github_pat_"),
    _token(
        "gitlab_token",
        rf"{_B}gl(?:pat|dt|ptt|rt|cbt|oas|soat|ft|imt|agent)-[\w.-]{{19,300}}\w",
        *_GITLAB,
    ),
    _token(
        "slack_token",
        rf"{_B}xox[abceoprs](?:\.xox[a-z])?-(?=[A-Za-z-]{{0,250}}\d)[A-Za-z0-9-]{{10,250}}",
        "xox",
    ),
    _token("slack_token", rf"{_B}xapp-\d-[A-Za-z0-9-]{{20,250}}", "xapp-"),
    _token(
        "slack_webhook",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9/+_-]{20,200})",
        "hooks.slack.com",
    ),
    _token("anthropic_key", rf"{_B}sk-ant-[a-z0-9]{{2,12}}-[\w-]{{20,250}}", "sk-ant-"),
    _token("openai_key", rf"{_B}sk-(?:proj|svcacct|admin|None)-[\w-]{{20,300}}", "sk-"),
    _token("openai_key", rf"{_B}sk-[A-Za-z0-9]{{32,100}}{_E}", "sk-"),
    _token("openrouter_key", rf"{_B}sk-or-v1-[a-f0-9]{{64}}{_E}", "sk-or-"),
    _token("google_key", rf"{_B}AIza[\w-]{{35}}(?![\w-])", "aiza"),
    _token("google_token", rf"{_B}ya29\.[\w-]{{20,1000}}", "ya29."),
    _token("google_secret", rf"{_B}GOCSPX-[\w-]{{28}}(?![\w-])", "gocspx-"),
    _token(
        "stripe_key",
        rf"{_B}[rs]k_(?:live|test)_[A-Za-z0-9]{{16,250}}{_E}",
        "sk_live_",
        "rk_live_",
        "sk_test_",
        "rk_test_",
    ),
    _token("stripe_key", rf"{_B}whsec_[A-Za-z0-9+/]{{24,100}}={{0,2}}", "whsec_"),
    _token(
        "jwt",
        rf"(?:(?<![\w-])|{ESCAPED})eyJ[\w-]{{8,4000}}+\.eyJ[\w-]{{8,16000}}+\.[\w-]{{16,2000}}",
        "eyj",
    ),
    _token("npm_token", rf"{_B}npm_[A-Za-z0-9]{{36}}{_E}", "npm_"),
    _token("pypi_token", rf"{_B}pypi-AgE[\w-]{{50,500}}", "pypi-age"),
    _token(
        "huggingface_token",
        rf"{_B}(?:hf_[A-Za-z]{{34}}|api_org_[A-Za-z]{{34}}){_E}",
        "hf_",
        "api_org_",
    ),
    _token("sendgrid_key", rf"{_B}SG\.[\w-]{{22}}\.[\w-]{{43}}(?![\w-])", "sg."),
    _token(
        "digitalocean_token", rf"{_B}do[opr]_v1_[a-f0-9]{{64}}{_E}", "dop_v1_", "doo_v1_", "dor_v1_"
    ),
    _token("shopify_token", rf"{_B}shp(?:at|ca|pa|ss)_[a-fA-F0-9]{{32}}{_E}", "shp"),
    _token("groq_key", rf"{_B}gsk_[A-Za-z0-9]{{52}}{_E}", "gsk_"),
    _token("xai_key", rf"{_B}xai-[A-Za-z0-9]{{70,100}}{_E}", "xai-"),
    _token("perplexity_key", rf"{_B}pplx-[A-Za-z0-9]{{48}}{_E}", "pplx-"),
    _token("replicate_token", rf"{_B}r8_[A-Za-z0-9]{{37}}{_E}", "r8_"),
    _token("nvidia_key", rf"{_B}nvapi-[\w-]{{60,70}}(?![\w-])", "nvapi-"),
    _token("langsmith_key", rf"{_B}lsv2_(?:pt|sk)_[a-f0-9]{{32}}_[a-f0-9]{{10}}{_E}", "lsv2_"),
    _token("databricks_token", rf"{_B}dapi[a-f0-9]{{32}}(?:-\d)?{_E}", "dapi"),
    _token("vault_token", rf"{_B}hv[bsr]\.[\w-]{{24,300}}", "hvs.", "hvb.", "hvr."),
    _token("linear_key", rf"{_B}lin_api_[A-Za-z0-9]{{40}}{_E}", "lin_api_"),
    _token("notion_token", rf"{_B}ntn_[A-Za-z0-9]{{40,60}}{_E}", "ntn_"),
    _token("atlassian_token", rf"{_B}ATATT3[\w=-]{{50,300}}", "atatt3"),
    rule_of("telegram_token", rf"(?:{_B}|(?<=/bot))\d{{8,10}}:AA[\w-]{{33}}(?![\w-])", ":aa"),
    _token("age_key", rf"{_B}AGE-SECRET-KEY-1[A-Z0-9]{{58}}{_E}", "age-secret-key-"),
    _token(
        "jwe",
        rf"(?:(?<![\w-])|{ESCAPED})eyJ[\w-]{{8,2000}}+\.[\w-]{{0,2000}}+\.[\w-]{{8,100}}+"
        r"\.[\w-]{1,16000}+\.[\w-]{16,100}",
        "eyj",
    ),
    _token(
        "private_key",
        r"Private-Lines: \d{1,4}(?:\s|\\[nr]){1,4}"
        r"(?P<secret>(?:[A-Za-z0-9+/=]{4,100}+(?:\s|\\[nr]){1,4}){1,400}"
        r"(?:Private-MAC: [0-9a-f]{40,64})?)",
        "private-lines",
    ),
    _token(
        "discord_webhook",
        r"/api/webhooks/\d{15,22}/(?P<secret>[\w-]{60,80})",
        "/api/webhooks/",
    ),
    _token(
        "teams_webhook",
        r"\.webhook\.office\.com/webhookb2/(?P<secret>[\w@/-]{60,250})",
        ".webhook.office.com",
    ),
    _token(
        "password_hash",
        r"(?:\$[156y]\$|\$2[abxy]?\$|\$apr1\$|\$argon2(?:id|i|d)\$)[^\s:\"'`<>\\]{20,200}",
        "$1$",
        "$5$",
        "$6$",
        "$y$",
        "$2$",
        "$2a$",
        "$2b$",
        "$2x$",
        "$2y$",
        "$apr1$",
        "$argon2",
    ),
    *(
        (_token if begins else rule_of)(
            kind, rf"{_B}{pattern}(?![A-Za-z0-9_-])", *words, certain=not _COMMON & {*words}
        )
        for begins, tokens in ((True, TOKENS_BY_PREFIX), (False, TOKENS_BY_SHAPE))
        for kind, pattern, words in tokens
    ),
)

# Names and what may stand between a name and its value. `_Q` is a quotation mark, also as JSON
# has it in a text; `_NL` a line end, also escaped; `_S` the beginning of a word, also behind an
# escaped line end.
_Q = r"\\{0,3}[\"']"
_NL = r"(?:\r?\n|(?:\\r)?\\n)"
_S = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"
_LINE = r"(?:(?m:^)|(?<=\\n)|(?<=[ \t\"]))"
_BARE = r"[^\s\"'`,;&<>\\(){}\[\]]"
_NAMES = ("passw", "passp", "passc", "pwd", "secret", "token", "key")
_NAME = r"(?P<name>(?i:passw(?:or)?d|passphrase|passcode|pwd|secret|token|key))"
_SECRET = r"(?P<secret>[^\s\"'`\\<$-][^\s\"'`\\]{3,127})"

_CONTEXT_RULES: tuple[Rule, ...] = (
    _context(
        "bearer_token",
        r"(?<![A-Za-z])[Bb](?:earer|EARER)[ \t]{1,4}(?P<secret>[\w.~+/-]{16,4096}+={0,2})",
        ("bearer",),
        check=is_bearer,
    ),
    _context(
        "basic_auth",
        r"(?<![A-Za-z])(?i:authorization)\\{0,3}[\"']?\s{0,3}[:=]\s{0,3}\\{0,3}[\"']?(?i:basic)[ "
        r"\t]{1,4}"
        r"(?P<secret>[A-Za-z0-9+/]{8,1024}+={0,2})",
        ("authorization",),
    ),
    _context(
        "authorization",
        rf"(?:(?<![A-Za-z])|(?<=\\[nrt]))(?i:authorization)(?:{_Q})?[ \t]{{0,3}}[:=]"
        rf"[ \t]{{0,3}}(?:{_Q})?(?:[A-Za-z][\w-]{{1,20}}[ \t]{{1,4}})?"
        r"(?P<secret>[\w.~+/:-]{16,4096}+={0,2})",
        ("authorization",),
        check=is_cookie,
    ),
    _context(
        "cookie",
        rf"(?:(?<![A-Za-z.])|(?<=\\[nrt]))(?i:cookie)(?:{_Q})?[ \t]{{0,3}}[:=][ \t]{{0,3}}(?:{_Q})?"
        r"(?P<secret>[\w.$%-]{1,64}=[^\r\n\"'`\\<>{}]{6,4096})",
        ("cookie",),
        check=is_cookie,
    ),
    _context(
        "cookie",
        rf"{_S}(?:-b|--cookie)[ =](?:{_Q})?(?P<secret>[\w.-]{{1,64}}=[^\r\n\"'`\\<>]{{6,4096}})",
        ("-b ", "--cookie"),
        keywords=("curl", "cookie"),
        check=is_cookie,
    ),
    _context(
        "cookie",
        r"(?<![A-Za-z_])(?i:phpsessid|jsessionid|asp\.net_sessionid|sessionid|connect\.sid"
        rf"|csrftoken|xsrf-token|laravel_session|\.aspxauth)(?:{_Q})?[ \t]{{0,3}}[:=][ \t]{{0,3}}"
        rf"(?:{_Q})?(?P<secret>[\w.%+/=-]{{16,1024}})",
        (
            "phpsessid",
            "jsessionid",
            "asp.net_sessionid",
            "sessionid",
            "connect.sid",
            "csrftoken",
            "xsrf-token",
            "laravel_session",
            ".aspxauth",
        ),
        check=is_cookie,
    ),
    _context(
        "url_password",
        r"://[^\s:/@\"'<>]{0,128}+:(?P<secret>[^\s/\"'<>]{1,256})(?=@)",
        ("://",),
        check=is_url_password,
    ),
    _context(
        "url_password",
        r"(?<!http)(?<!https)://[^\s:/@\"'<>]{0,128}+:(?P<secret>[^\s\"'<>@\\]{1,256})"
        r"(?=@[\w.-]{1,200})",
        ("://",),
        check=is_url_password,
    ),
    _context(
        "url_password",
        r"://(?P<secret>[\w-]{20,256}+)(?=@)",
        ("://",),
        check=is_generated,
    ),
    _context(
        "url_password",
        r"(?<=[\w-]):(?P<secret>[^\s\"'`<>]{1,128})(?=@(?:tcp|unix|udp)\()",
        (),
        keywords=("@tcp(", "@unix(", "@udp("),
        check=is_written_out,
    ),
    _context(
        "url_password",
        r"(?:jdbc:oracle:\w{1,8}:|sqlplus[ ](?:-\w{1,2}[ ]){0,3})[\w$-]{1,64}/"
        r"(?P<secret>[^\s\"'`<>@]{4,128})",
        ("jdbc:oracle", "sqlplus"),
        check=is_written_out,
    ),
    _context(
        "url_key",
        r"(?<=[?&])(?i:key|sig|(?:x-amz-|x-goog-)?signature|x-amz-security-token)="
        r"(?P<secret>[^\s&#\"'`<>\\]{16,1024})",
        ("key=", "sig=", "signature=", "x-amz-", "x-goog-"),
        keywords=("key=", "sig=", "signature=", "security-token="),
        check=is_url_key,
    ),
    _context(
        "credential",
        r"(?P<name>(?i:passw(?:or)?d|passwort|passphrase|passcode|pwd|secret|token"
        r"|key(?:[_-]?(?:base|data))?|pass|psw|pw|auth)|пароль|密码|密碼)"
        r"(?:\\{0,3}[\"'`])?\]?\*{0,2}[ \t]{0,3}(?::=|=>|==|[:=：])\*{0,2}[ \t]{0,3}(?:base64:)?"
        r"(?:\\{1,3}(?P<escaped>[\"'`])|[bBrRfF]{0,2}(?P<quote>[\"'`])|)"
        r"(?P<secret>(?(escaped)[^\"'`\\\r\n]{4,256}"
        r"|(?(quote)(?:(?!(?P=quote))[^\\\r\n]|\\[^\r\n]){4,256}"
        rf"|{_BARE}{{4,512}})))",
        (
            *_NAMES,
            *(f"{name}{sign}" for name in ("pass", "psw", "pw", "auth") for sign in ":= \"'\\]"),
            "пароль",
            "密码",
            "密碼",
        ),
        keywords=(
            *_NAMES,
            *("pass:", "pass=", "_pass", ".pass", 'pass"', "pass'", "pw:", "pw=", "psw", "_auth"),
            *("пароль", "密码", "密碼"),
        ),
        check=is_assigned_secret,
    ),
    _context(
        "credential",
        r"(?P<name>PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|PSW|SECRET|TOKEN|KEY|AUTH)="
        r"(?P<secret>[^\s\"'`\\<$][^\s\"'`\\]{3,255})",
        tuple(
            f"{name}="
            for name in [
                "password",
                "passwd",
                "passphrase",
                "pass",
                "pwd",
                "psw",
                "secret",
                "token",
                "key",
                "auth",
            ]
        ),
        check=is_environment_secret,
    ),
    _context(
        "credential",
        rf"{_S}(?:setx|set[ ]-g?x|ENV)[ \t]{{1,4}}(?P<name>[A-Z][A-Z0-9_]{{2,60}})[ \t]{{1,4}}"
        r"(?P<secret>[^\s\"'`\\<$][^\s\"'`\\]{3,255})",
        ("setx ", "set -", "env "),
        check=is_named_secret,
    ),
    _context(
        "credential",
        r"(?P<name>password|passwd|secret|passphrase)="
        r"(?P<secret>[^\s\"'`\\(){}\[\],;<>$]{6,255})(?=[ \t]{0,8}(?:\r?\n|\\[nr]|$))",
        ("password=", "passwd=", "secret=", "passphrase="),
        check=is_property,
    ),
    _context(
        "credential",
        r"(?P<name>(?i:password|passwd|passphrase|pass|pw|token|secret|key))[ =]"
        r"(?:\\{0,3}(?P<quote>[\"']))?(?P<secret>[^\s\"'`<>\\-][^\s\"'`<>\\]{3,255})",
        (*_NAMES, "pass ", "pass=", "pw ", "pw="),
        keywords=("-pass", "-token", "-secret", "-pw", "key ", "key=", "-p", "token ", "token="),
        needs=("--", " -p", " -t", " -s", " -a"),
        check=is_flag,
    ),
    _context(
        "credential",
        rf"{_S}-(?:pass(?:in|out)?[ ]pass:|(?:store|key|src|dest)pass[ =](?:{_Q})?){_SECRET}",
        ("-pass", "-storepass", "-keypass", "-srcpass", "-destpass"),
        check=is_written_out,
    ),
    _context(
        "credential",
        rf"{_S}(?:-u|-U|--user|--proxy-user)[ =]?(?:{_Q})?[^\s:\"'\\]{{1,64}}:"
        r"(?P<secret>[^\s\"'\\]{3,256})",
        ("-u", "--user", "--proxy-user"),
        keywords=("curl", "http"),
        check=is_not_a_number,
    ),
    _context(
        "credential",
        rf"{_S}(?:mysql(?:dump|admin|import|show|check)?|mariadb(?:-dump|-admin)?|7z[ar]?)[ ]"
        rf"[^\r\n|;&]{{0,200}}?(?<=[ ])-p{_SECRET}",
        ("mysql", "mariadb", "7z"),
        check=is_written_out,
    ),
    _context(
        "credential",
        rf"{_S}(?:sshpass|(?:docker|podman|helm[ ]registry|oc|az|nerdctl)[ ]login|redis-cli"
        r"|ldap(?:search|add|modify|passwd|delete|whoami)|sqlcmd|mosquitto_(?:pub|sub)"
        rf"|mongo(?:sh|dump|restore)|(?:un)?zip)[ ][^\r\n|;&]{{0,200}}?(?<=[ ])-[pPaw][ ]?(?:{_Q})?"
        rf"{_SECRET}",
        (
            *("sshpass", "docker login", "podman login", "helm registry", "oc login", "az login"),
            *("nerdctl login", "redis-cli", "ldapsearch", "ldapadd", "ldapmodify", "ldappasswd"),
            *("ldapdelete", "ldapwhoami", "sqlcmd", "mosquitto_", "mongosh", "mongodump"),
            *("mongorestore", "zip -", "unzip -"),
        ),
        check=is_written_out,
    ),
    _context(
        "credential",
        rf"{_S}(?:htpasswd[ ]-\w{{0,4}}b\w{{0,4}}[ ][^\s]{{1,128}}[ ][^\s]{{1,64}}[ ]"
        rf"|smbclient[ ][^\r\n|;&]{{0,128}}?-U[ ][^\s%]{{1,64}}%){_SECRET}",
        ("htpasswd", "smbclient"),
        check=is_written_out,
    ),
    _context(
        "credential",
        r"(?<=[\w-]):(?P<secret>[^\s\"'`\\<$]{4,127})(?:\\{0,3}[\"'])?[ ]{0,2}\|"
        r"[ ]{0,2}(?:sudo[ ])?chpasswd",
        (),
        keywords=("chpasswd",),
        check=is_written_out,
    ),
    _context(
        "credential",
        rf"{_S}machine[ \t]{{1,4}}[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,8}}(?:\s|{_NL}){{1,8}}"
        rf"(?:(?:login|account)[ \t]{{1,4}}[^\s\\]{{1,128}}(?:\s|{_NL}){{1,8}}){{1,2}}"
        r"password[ \t]{1,4}(?P<secret>[^\s\"'`\\]{4,256})",
        ("machine ",),
        keywords=("password ",),
        needs=("machine ",),
        check=is_written_out,
    ),
    _context(
        "credential",
        rf"{_S}login[ \t]{{1,4}}[^\s\\]{{1,128}}(?:\s|{_NL}){{1,8}}"
        r"password[ \t]{1,4}(?P<secret>[^\s\"'`\\]{4,256})",
        ("login ",),
        keywords=("password ",),
        needs=("login ",),
        check=is_chosen,
    ),
    _context(
        "credential",
        rf"(?<![A-Za-z0-9])_(?:auth(?:Token)?|password)(?:{_Q})?[ ]{{0,2}}[=:][ ]{{0,2}}(?:{_Q})?"
        r"(?P<secret>[A-Za-z0-9+/=_.-]{8,1024})",
        ("_auth", "_password"),
        check=is_user_and_password,
    ),
    _context(
        "credential",
        rf"(?<=[\"'])auth{_Q}[ ]{{0,4}}:[ ]{{0,4}}{_Q}(?P<secret>[A-Za-z0-9+/]{{8,1024}}={{0,2}})",
        ('auth"', "auth\\", "auth'"),
        check=is_user_and_password,
    ),
    _context(
        "credential",
        rf"{_LINE}[\w.*-]{{1,128}}:(?:\d{{2,5}}|\*):[\w*-]{{1,64}}:[\w.*-]{{1,64}}:"
        r"(?P<secret>[^\s\"'`\\]{6,256})(?=\s|\\[nr]|$)",
        (),
        keywords=(":5432:", ":5433:", ":6432:", ":*:*:"),
        check=is_written_out,
    ),
    _context("credential", r"WIFI:[^\s\"'<>]{0,128}?P:(?P<secret>[^\s;\"'<>]{6,63});", ("wifi:",)),
    _context(
        "private_key",
        rf"(?<=[\"'])d{_Q}\s{{0,3}}:\s{{0,3}}{_Q}(?P<secret>[\w-]{{40,1024}})",
        ('d"', "d'", "d\\"),
        keywords=('"kty', "'kty"),
    ),
    _context(
        "credential",
        r"(?i:identified[ ](?:with[ ]\w{1,40}[ ])?by|with[ ]password|encrypted[ ]password)[ ]{1,3}"
        r"(?:=[ ]?)?\\{0,3}'(?P<secret>[^'\\\r\n]{4,256})'",
        ("identified ", "with password", "encrypted password"),
        check=is_written_out,
    ),
    _context(
        "credential",
        r"(?i:\.login\(|auth=\(|basicauth\(|basicnamevaluepair\(|(?:mysqli?|pg)_connect\("
        rf"[^)\r\n]{{1,80}}?,|sequelize\([ ]?{_Q}[^\"'\\\r\n]{{1,64}}{_Q},)[ ]?"
        rf"{_Q}[^\"'\\\r\n]{{1,128}}{_Q},[ ]?{_Q}(?P<secret>[^\"'\\\r\n]{{4,128}}){_Q}",
        (
            *(".login(", "auth=(", "basicauth(", "basicnamevaluepair("),
            *("mysql_connect(", "mysqli_connect(", "sequelize("),
        ),
        check=is_chosen,
    ),
    _context(
        "credential",
        rf"{_NAME}(?:{_Q},[ ]?|\([ ]?){_Q}(?P<secret>[^\s\"'\\\r\n]{{6,256}}){_Q}",
        _NAMES,
        needs=('",', "',", '("', "('", '\\",', '(\\"', "( "),
        check=is_stated_secret,
    ),
    _context(
        "credential",
        r"(?P<name>(?i:passw(?:or)?d|passwort|passphrase|passcode|kennwort|key|token|contraseña"
        r"|mot[ ]de[ ]passe|пароль|secret))(?:[ ](?:for|to|of|on|für)[ ][^\r\n.:\"]{1,40}?)?[ ]"
        r"(?:(?i:is|was|lautet|ist|est|es|это)(?:[ ]now)?[ ]?:?[ ]{0,2}(?:\\{0,3}[\"'`])?|`)"
        r"(?P<secret>[^\s\"'`<>\\]{5,127}[^\s\"'`<>\\.,;:!?)])",
        (*_NAMES, "kennwort", "contraseña", "mot de passe", "пароль"),
        needs=(
            " is ",
            " was ",
            " lautet ",
            " ist ",
            " est ",
            " es ",
            " это ",
            "`",
            " is:",
            " now",
            " is",
        ),
        check=is_stated_secret,
    ),
    _context(
        "credential",
        r"(?P<name>密码|密碼|口令)(?:是|为|為)?[:： ]{0,3}(?P<secret>[!-\[\]-~]{6,128})",
        ("密码", "密碼", "口令"),
        check=is_chosen,
    ),
    _context(
        "credential",
        rf"{_NAME}(?:[ ]{{0,20}}\|[ ]{{0,8}}`?"
        rf"|(?:{_Q})?:[ ]{{0,2}}[|>][+-]?[ ]{{0,2}}{_NL}[ ]{{1,16}})"
        r"(?P<secret>[^\s|`\\]{6,1024})",
        _NAMES,
        needs=("|", ": >"),
        check=is_stated_secret,
    ),
    _context(
        "credential",
        rf"(?i:name|key)(?:{_Q})?[ ]?:[ ]{{0,2}}(?:{_Q})?(?P<name>[\w.-]{{3,80}})(?:{_Q})?[ ]?"
        rf"(?:,|{_NL})(?:\s|{_NL}){{0,8}}[ ]{{0,16}}(?:{_Q})?(?i:value)(?:{_Q})?[ ]?:[ ]{{0,2}}"
        rf"(?:{_Q})?(?P<secret>[^\s\"'\\]{{4,256}})",
        ("name", "key"),
        keywords=_NAMES,
        needs=("value",),
        check=is_named_secret,
    ),
    _context(
        "credential",
        rf"{_NAME}(?:{_Q})?(?:\s[^<>\r\n]{{0,100}})?>(?:<!\[CDATA\[)?(?P<secret>[^<>\s\\\]]{{4,256}})"
        r"(?:\]\]>)?</",
        _NAMES,
        needs=("</",),
        check=is_element,
    ),
    _context(
        "credential",
        rf"(?i:name|key|id)={_Q}(?P<name>[\w.:-]{{3,80}}){_Q}[^<>\r\n]{{0,80}}?\svalue={_Q}"
        r"(?P<secret>[^\"'<>\\\r\n]{4,256})",
        ("name=", "key=", "id="),
        keywords=_NAMES,
        needs=("value=",),
        check=is_named_secret,
    ),
    _context(
        "credential",
        rf"{_LINE}(?:requirepass|masterauth|bindpw|rootpw)[ \t]{{1,8}}"
        r"(?P<secret>[^\s\"'<>\\]{4,128})",
        ("requirepass", "masterauth", "bindpw", "rootpw"),
        check=is_written_out,
    ),
)

# A secret in base64 has one of three forms, by where in a group of three bytes it begins.
_WRAPPED = (
    *("ghp_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk-ant-", "sk-proj-", "AKIA", "npm_"),
    *("AIza", "sk_live_", "password", "PASSWORD", "secret_", "SECRET", "api_key", "API_KEY"),
    *("TOKEN", "PRIVATE"),
)


def _in_base64(word: str) -> tuple[str, ...]:
    forms = []
    for offset in range(3):
        size = offset + len(word)
        encoded = base64.b64encode(bytes(offset) + word.encode()).decode()
        # Only the characters all of whose bits come from the word.
        forms.append(encoded[-(-offset * 8 // 6) : size * 8 // 6])
    return tuple(forms)


def _hides_a_secret(match: re.Match[str]) -> bool:
    """Return True if base64 is of a text that has a secret."""
    blob = match.group().rstrip("=")
    try:
        text = base64.b64decode(blob + "=" * (-len(blob) % 4)).decode()
    except ValueError:
        return False
    lowered = text.lower()
    for rule in (*_FORM_RULES, *_CONTEXT_RULES):
        if any(word in lowered for word in rule.keywords):
            for inner in rule.pattern.finditer(text):
                if rule.check is None or rule.check(inner):
                    return True
    return False


_ENCODED_RULES: tuple[Rule, ...] = (
    rule_of(
        "encoded_secret",
        r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/]{20,16000}+={0,2}",
        *(form for word in _WRAPPED for form in _in_base64(word) if len(form) >= 5),
        check=_hides_a_secret,
        certain=False,
    ),
)

SECRET_RULES: tuple[Rule, ...] = (*_FORM_RULES, *_CONTEXT_RULES, *_ENCODED_RULES)
"""Secrets by their form, most certain first."""
