"""Models by name: one word names an embedder, a reranker or a model that learns, in code, settings
and commands. Each is met through its own library, over HTTP on this machine where it has a server.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.model_servers import ModelServer, serving

from tallystick import Actor, Tally
from tallystick.embedding import named_embedder, named_reranker
from tallystick.errors import (
    EmbedderUnavailable,
    InvalidInput,
    ModelUnavailable,
    SettingsError,
)
from tallystick.settings import Settings
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick_cli.app import main

ANNA = Actor(user="anna", role="operator")
OpenTally = Callable[..., Tally]
ANSWER = {
    "facts": [{"text": "I live in Berlin.", "kind": "fact", "sure": 90}],
    "names": [],
    "relations": [],
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A server on this machine that Ollama's, OpenAI's and Anthropic's clients find."""
    served = ModelServer("nomic-embed-text", "qwen3", "claude-haiku-4-5", answer=ANSWER)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # A proxy that nobody answers at: what is local goes through none.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serving(served) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield served


each_service = pytest.mark.parametrize("service", ["ollama", "openai"])


@each_service
def test_a_service_on_this_machine_embeds_by_one_word_and_its_vectors_commit_with_the_text(
    open_sqlite: OpenTally, server: ModelServer, service: str
) -> None:
    with open_sqlite(embedder=f"{service}:nomic-embed-text") as tally:
        anna = tally.bind(ANNA)
        stored = anna.remember("The heron nests in March. My mail is anna@example.org.")
        assert stored.job_id is None
        assert "anna@example.org" in server.seen[-1]
        [hit] = anna.recall("heron")
        assert hit.signals["vector"] > 0
        assert not _consents(tally)


def _consents(tally: Tally) -> list[Any]:
    with services_of(tally).store.database.read() as connection:
        entries = list(journal.entries(connection, "tally"))
    return [each for each in entries if each.event == "egress.consent"]


def test_ollama_says_what_the_model_is_without_a_text(server: ModelServer) -> None:
    embedder = named_embedder("ollama:nomic-embed-text")
    assert embedder.fingerprint == f"ollama:nomic-embed-text:{'5e' * 6}:32"
    assert embedder.dimension == 32
    assert not server.seen
    server.digest = "sha256:" + "77" * 32
    assert named_embedder("ollama:nomic-embed-text").fingerprint != embedder.fingerprint


def test_a_model_of_openai_itself_is_known_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    embedder = named_embedder("openai:text-embedding-3-small")
    assert (embedder.fingerprint, embedder.dimension) == (
        "openai:text-embedding-3-small:1536",
        1536,
    )
    assert not getattr(embedder, "local", True)


def test_a_service_far_away_is_named_in_code_or_allowed_and_gets_texts_without_secrets(
    open_sqlite: OpenTally, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As far away as a server can be here: the name of this machine is not the loopback's.
    monkeypatch.setattr("tallystick_openai.embedding.is_loopback", lambda address: False)
    name = "openai:nomic-embed-text"
    with pytest.raises(SettingsError, match=r"embedder: .*remote_allow"):
        open_sqlite(owner=ANNA, settings=Settings(embedder=name))
    allowed = Settings(embedder=name, remote_allow=(name,))
    ways: tuple[dict[str, Any], ...] = ({"settings": allowed}, {"embedder": name})
    for number, options in enumerate(ways):
        with open_sqlite(owner=ANNA, **options) as tally:
            assert [each.details["providers"] for each in _consents(tally)][-1] == [
                "embedder:openai:127.0.0.1:nomic-embed-text"
            ]
            anna = tally.bind()
            stored = anna.remember(f"Heron {number} is fed by bob@example.org.")
            anna.remember("Mine alone: ida@example.org.", attributes={"local_only": True})
            assert stored.job_id is not None
            tally.drain()
    assert server.seen
    assert not any("@example.org" in text for text in server.seen)


def test_a_model_that_ollama_runs_on_servers_of_its_own_is_not_on_this_machine() -> None:
    assert not getattr(named_embedder("ollama:embed:120b-cloud"), "local", True)
    assert getattr(named_embedder("ollama:embed:latest"), "local", False)


@each_service
def test_a_service_that_is_away_leaves_words_and_its_vectors_follow(
    open_sqlite: OpenTally, server: ModelServer, service: str
) -> None:
    server.status = 503
    with open_sqlite(owner=ANNA, embedder=f"{service}:nomic-embed-text") as tally:
        anna = tally.bind()
        stored = anna.remember("The heron nests in March.")
        assert any("without a vector" in each for each in stored.warnings)
        assert [hit.content for hit in anna.recall("heron")] == ["The heron nests in March."]
        [finding] = [each for each in anna.operator.doctor() if each.check == "vectors"]
        assert (finding.status, service in finding.text) == ("problem", True)
        server.status = 200
        assert tally.drain().embedded == 1
        [hit] = anna.recall("heron")
        assert hit.signals["vector"] > 0


@each_service
def test_a_model_that_the_service_does_not_have_is_named(server: ModelServer, service: str) -> None:
    told = {"ollama": "ollama pull no-such", "openai": "no model no-such"}[service]
    with pytest.raises(EmbedderUnavailable, match=told):
        named_embedder(f"{service}:no-such").embed(["heron"])


def test_openai_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        named_embedder("openai:text-embedding-3-small")


@pytest.mark.parametrize("name", ["", "word2vec", "nobody:x", "ollama:", "fastembed:"])
def test_a_name_of_nothing_is_refused_with_those_there_are(
    open_sqlite: OpenTally, name: str
) -> None:
    with pytest.raises(InvalidInput, match="fastembed:MODEL"):
        open_sqlite(embedder=name)
    with pytest.raises(InvalidInput, match="fastembed:MODEL"):
        open_sqlite(reranker=name)


def test_a_service_has_no_reranker(server: ModelServer) -> None:
    with pytest.raises(InvalidInput, match="no model that scores"):
        named_reranker("ollama:qwen3")


# On the command line


def test_the_command_says_what_embedding_anew_takes_and_does_it_where_it_is_told_to(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, background=False) as tally:
        tally.bind().remember_many(["The heron nests in March.", "The tide turns at ten."])

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["tally", "reembed", *arguments, "--tally", str(place)])
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = int(ended.code or 0)
        return code, capsys.readouterr().out

    code, planned = run("ollama:nomic-embed-text")
    assert code == 0
    assert "2 texts" in planned
    assert "on this machine" in planned
    assert "recall goes by static" in planned
    assert not server.seen
    code, planned = run("ollama:nomic-embed-text", "--json")
    assert (json.loads(planned)["texts"], json.loads(planned)["cost"]) == (2, None)
    code, done = run("ollama:nomic-embed-text", "--apply")
    assert (code, len(server.seen)) == (0, 2)
    assert 'set embedder = "ollama:nomic-embed-text"' in " ".join(done.split())
    code, done = run("ollama:nomic-embed-text", "--apply", "--json")
    assert json.loads(done)["embedded"] == 0
    code, again = run("ollama:nomic-embed-text")
    assert "Every text has a vector" in again


@pytest.mark.slow
def test_an_interrupted_command_pauses_and_the_next_one_goes_on(
    tmp_path: Path, server: ModelServer
) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, background=False) as tally:
        tally.bind().remember_many([f"Note {number} of the heron." for number in range(800)])
    command = [sys.executable, "-c", "from tallystick_cli import main; main()", "reembed"]
    command += ["ollama:nomic-embed-text", "--apply", "--json", "--tally", str(place)]
    server.pause = 0.2
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    while len(server.seen) < 100:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    paused = json.loads(out)
    assert process.returncode == 1
    assert paused["embedded"] + paused["left"] == 800
    assert 0 < paused["left"] < 800
    server.pause = 0.0
    done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert (done["embedded"], done["left"]) == (paused["left"], 0)
    assert len(server.seen) == len(set(server.seen)) == 800


# Models that learn


@pytest.mark.parametrize("name", ["ollama:qwen3", "openai:qwen3", "anthropic:claude-haiku-4-5"])
def test_a_model_by_name_extracts_in_a_recorded_step(
    open_sqlite: OpenTally, server: ModelServer, name: str
) -> None:
    for options in (
        {"learning_model": name, "settings": Settings(learning="review")},
        {"settings": Settings(learning="review", learning_model=name)},
    ):
        with open_sqlite(owner=ANNA, **options) as tally:
            anna = tally.bind()
            stored = anna.remember(f"Well, I live in Berlin these days ({len(server.asked)}).")
            tally.drain()
            job = anna.jobs.get(stored.job_id or "")
            assert (job.state, job.error_text) == ("done", None)
            [call, *_] = anna.operator.outbound_calls()
            assert (call.provider, call.model) == tuple(name.split(":"))
            assert (call.local, call.input_tokens, call.output_tokens) == (True, 7, 5)


def test_each_service_is_asked_for_the_record_in_its_own_way(
    open_sqlite: OpenTally, server: ModelServer
) -> None:
    for name in ("ollama:qwen3", "openai:qwen3", "anthropic:claude-haiku-4-5"):
        with open_sqlite(
            owner=ANNA, learning_model=name, settings=Settings(learning="review")
        ) as tally:
            tally.bind().remember(f"I live in Berlin, says {name}.")
            tally.drain()
    by_place = {body["_path"]: body for body in reversed(server.asked)}
    ollama, openai = by_place["/api/chat"], by_place["/v1/chat/completions"]
    assert "facts" in ollama["format"]["properties"]
    assert ollama["options"]["num_ctx"] >= 8_192
    strict = openai["response_format"]["json_schema"]["schema"]
    assert strict["required"] == ["facts", "names", "relations"]
    assert strict["additionalProperties"] is False
    assert "default" not in json.dumps(strict)
    assert "facts" in json.dumps(by_place["/v1/messages"]["output_config"]["format"]["schema"])


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("qwen3", InvalidInput, "NAME:MODEL"),
        ("nobody:qwen3", InvalidInput, "ollama"),
    ],
)
def test_a_learning_model_of_no_service_is_refused(
    open_sqlite: OpenTally, name: str, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        open_sqlite(learning_model=name, settings=Settings(learning="review"))


def test_a_model_of_ollama_that_is_not_there_waits_and_says_what_to_run(
    open_sqlite: OpenTally, server: ModelServer
) -> None:
    with open_sqlite(
        owner=ANNA, learning_model="ollama:no-such", settings=Settings(learning="review")
    ) as tally:
        stored = tally.bind().remember("I live in Berlin.")
        with pytest.raises(ModelUnavailable, match="ollama pull no-such"):
            tally.drain()
        job = tally.bind().jobs.get(stored.job_id or "")
        assert job.state == "retry_scheduled"
