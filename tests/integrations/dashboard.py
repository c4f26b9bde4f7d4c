"""A browser without scripts that reads the dashboard, and a tally with something to see."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from tallystick import Actor, Tally
from tallystick.records import ContextItem, PolicyConditions, PolicyRule
from tallystick.tally import BoundTally
from tallystick_server.guard import COOKIE

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>{{ 7*7 }}</b>\u202e\x1b[31m"
"""Text that a careless page would run."""
WITHHELD = "The vault opens at noon."
"""Text that a rule keeps out of every context."""
SECRET = "AKIAIOSFODNN7EXAMPLE"
"""Text that redaction takes out before anything is stored."""
RULE = PolicyRule(
    id="no-vault",
    name="No vault",
    description="Nothing about the vault.",
    effect="deny",
    conditions=PolicyConditions(tag=("vault",)),
)


@dataclass
class Form:
    """A form of a page, with the values that it would send."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """What a page contains."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        super().__init__()
        self.url = url
        self.status = response.status_code
        self.headers = response.headers
        self.source = response.text
        self.links: list[str] = []
        self.loads: list[str] = []
        self.forms: list[Form] = []
        self.elements: dict[str, int] = {}
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.title = ""
        self._inside: list[str] = []
        self._area = ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag not in ("input", "meta", "link", "br", "rect", "path", "circle", "line"):
            self._inside.append(tag)
        self.elements[tag] = self.elements.get(tag, 0) + 1
        self.attributes |= set(named)
        if tag == "a":
            self.links.append(urljoin(self.url, named["href"]))
        if tag in ("script", "img", "iframe", "object", "embed"):
            self.loads.append(urljoin(self.url, named.get("src", "")))
        if tag == "link":
            self.loads.append(urljoin(self.url, named["href"]))
        if tag == "form":
            action = urljoin(self.url, named.get("action") or urlsplit(self.url).path)
            self.forms.append(Form(action, named.get("method", "get").upper()))
        if tag in ("input", "select", "textarea") and "name" in named and self.forms:
            self._area = named["name"] if tag == "textarea" else ""
            is_off = named.get("type") in ("radio", "checkbox") and "checked" not in named
            if not is_off:
                self.forms[-1].fields[named["name"]] = named.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside[-1:] == ["textarea"]:
            # A browser drops the line end that begins a text area.
            self.forms[-1].fields[self._area] = data.removeprefix("\n")
        if self._inside[-1:] == ["title"]:
            self.title += data
        elif data.strip() and self._inside[-1:] != ["script"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """The text that a person reads, with single spaces."""
        return " ".join(" ".join(self.texts).split())

    def form(self, path: str) -> Form:
        """The form that is sent to a path which ends so."""
        [found] = [form for form in self.forms if urlsplit(form.action).path.endswith(path)]
        return found


class Browser:
    """A browser without scripts: it keeps the cookie, and says what made it ask."""

    def __init__(self, base: str, secret: str | None = None) -> None:
        self.base = base
        self.http = httpx2.Client(base_url=base, trust_env=False, timeout=30)
        self.secret = secret

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *details: object) -> None:
        self.http.close()

    def get(self, path: str, *, site: str = "none", **headers: str) -> Page:
        """Open an address, as a person who types it."""
        return self._page("GET", path, {"sec-fetch-site": site, **headers})

    def send(self, form: Form, /, *, site: str = "same-origin", **fields: str) -> Page:
        """Fill in a form and send it; follow where it leads."""
        headers = {"sec-fetch-site": site, "origin": self.base}
        return self._page(form.method, form.action, headers, {**form.fields, **fields})

    def _page(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        fields: Mapping[str, str] | None = None,
    ) -> Page:
        if self.secret is not None:
            headers["cookie"] = f"{COOKIE}={self.secret}"
        url = urljoin(f"{self.base}/ui/", path.removeprefix("/ui/"))
        options: dict[str, Any] = {}
        if fields is not None:
            options = {"data": dict(fields)} if method == "POST" else {"params": dict(fields)}
        response = self.http.request(method, url, headers=headers, **options)
        if response.status_code == 303:
            next_one = {"sec-fetch-site": "same-origin"}
            return self._page("GET", urljoin(url, response.headers["location"]), next_one)
        return Page(str(response.url), response)

    def correct(self, memory_id: str, change: str, /, **fields: str) -> tuple[Page, Page | None]:
        """Fill in the form of a change and look at its preview; then apply it, if it is one."""
        asked = self.get(f"memories/{memory_id}/{change}")
        preview = self.send(asked.form(f"/{change}"), reason="it is so", **fields)
        if preview.status != 200:
            return preview, None
        return preview, self.send(preview.form(f"/{change}"))

    def crawl(self, *starts: str, each: int = 2) -> Iterator[Page]:
        """Open every page that can be reached by links; of those whose addresses differ in ids and
        words alone, `each` of them.
        """
        waiting = [urljoin(f"{self.base}/ui/", start) for start in starts]
        seen: set[str] = set()
        alike: dict[str, int] = {}
        while waiting:
            url = waiting.pop(0).partition("#")[0]
            if url in seen:
                continue
            seen.add(url)
            kind = re.sub(r"=[^&]*|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "*", url)
            alike[kind] = alike.get(kind, 0) + 1
            if alike[kind] > each:
                continue
            page = self.get(url, site="same-origin")
            yield page
            waiting += page.links


@dataclass(frozen=True)
class Played:
    """What was recorded to be looked at."""

    run_id: str
    step_id: str
    tool_step_id: str
    memory_id: str
    other_id: str
    source_id: str


def play(tally: Tally, actor: Actor, *, scope: str | None = None) -> Played:
    """Record a run that has everything that a page shows: memory, a compile with every decision,
    a rule that withholds, a secret, a tool, text that means harm, and nested steps.
    """
    bound: BoundTally = tally.bind(actor, scope)
    memory = bound.remember(
        "The heron nests in March, in the reeds.", kind="fact", tags=["birds"], subject="heron"
    )
    other = bound.remember(f"Somebody wrote {HOSTILE} into a note.", kind="fact")
    with bound.run("birdwatcher", domain="birds", goal=f"Say when it nests. {HOSTILE}") as run:
        hits = bound.recall("When does the heron nest?", limit=5)
        with run.step("model_call", name="answer") as step:
            items = [
                ContextItem(id="task", kind="user_msg", content="When does the heron nest?"),
                ContextItem(id="vault", kind="file", content=WITHHELD, tags=frozenset({"vault"})),
                ContextItem(id="note", kind="file", content="The heron nests in March: a note."),
                ContextItem(id="again", kind="file", content="The heron nests in March: a note."),
                ContextItem(id="evil", kind="file", content=f"The heron nests. {HOSTILE}"),
                ContextItem(
                    id="long", kind="file", content="Here the heron nests in old trees. " * 400
                ),
            ]
            bound.compile([*items, *hits], budget=400, rules=[RULE])
            step.record(
                "request",
                {"messages": [{"role": "user", "content": f"The key is {SECRET}. {HOSTILE}"}]},
                summary={"model": "owl-1"},
            )
            step.record(
                "response",
                {"answer": {"role": "assistant", "content": "In March."}},
                summary={
                    "usage": {"input_tokens": 120, "output_tokens": 8},
                    "cost": {"amount": "0.0021", "currency": "USD"},
                },
            )
        with run.step("tool_call", name="look_up") as outer:
            outer.record("tool_call", {"name": "look_up", "arguments": {"of": HOSTILE}})
            with run.step("other", name="inner", parent=outer.id) as inner:
                inner.record("note", {"text": "inside"})
            outer.record("tool_result", {"result": HOSTILE})
    [source_id] = bound.inspect(memory.id).sources
    return Played(run.id, step.id, outer.id, memory.id, other.id, source_id)


def spend(tally: Tally, actor: Actor, tokens: list[int]) -> str:
    """Record a run of model calls that took so many tokens each; return its id."""
    bound = tally.bind(actor)
    with bound.run("spender", goal="Spend tokens.") as run:
        for number, count in enumerate(tokens):
            with run.step("model_call") as step:
                asked = ContextItem(id="task", kind="user_msg", content=f"Question {number}?")
                bound.compile([asked], budget=100 * (number + 1))
                step.record(
                    "response",
                    {"answer": {"role": "assistant", "content": "Yes."}},
                    summary={
                        "usage": {"input_tokens": count, "output_tokens": 0},
                        "cost": {"amount": "0.0021", "currency": "USD"},
                    },
                )
    return run.id


_OF_ACCESS = ("access_log", "sqlite_sequence")
"""Tables that a read may write to."""


def rows_of(folder: Path) -> dict[str, list[Any]]:
    """Every row of the database but those of the access log, by table."""
    with sqlite3.connect(f"file:{folder / 'tally.db'}?mode=ro", uri=True) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if name not in _OF_ACCESS and "search_text_" not in name
        ]
        rows = {
            name: sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"')))
            for name in tables
        }
    connection.close()
    return rows
