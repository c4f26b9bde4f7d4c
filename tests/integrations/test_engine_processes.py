"""Processes with folders of their own, one PostgreSQL and one Chroma server between them: each is
started by its own command, and each finds what the other wrote.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import chroma_server, new_database

from tallystick.settings import trust_file

ROOT = Path(__file__).parents[2]
TALLY = Path(sys.executable).with_name("tally")

AGENT = """
import sys, time
from tallystick import Actor, Tally

url, name, other = sys.argv[1:]
with Tally.open(url) as tally:
    actor = Actor(user=name, projects=["apollo"])
    mine, ours = tally.bind(actor), tally.bind(actor, "project:apollo")
    for number in range(15):
        mine.remember(f"{name} notes {number} alone", kind="fact")
        ours.remember(f"{name} tells everybody {number}", kind="fact")
    tally.drain()
    print("written", flush=True)
    sys.stdin.readline()
    found = ours.recall(f"what does {other} tell everybody?", scopes=["project:apollo"], limit=30)
    said = {hit.memory.content for hit in found}
    assert {f"{other} tells everybody {number}" for number in range(15)} <= said, said
    assert (found.path, found.warnings) == ("chroma", ()), (found.path, found.warnings)
    hidden = [hit.memory.content for hit in mine.recall(f"what does {other} note alone?", limit=30)]
    assert not any(text.startswith(f"{other} notes") for text in hidden), hidden
    print("found", flush=True)
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _folder(place: Path, address: str) -> Path:
    place.mkdir()
    file = place / "tallystick.toml"
    file.write_text(f'chroma = "{address}"\nvector_search = "chroma"\n')
    trust_file(file, file.read_bytes())
    return place


def _agent(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", AGENT, *arguments],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _tally(folder: Path, url: str, *arguments: str) -> Any:
    done = subprocess.run(
        [str(TALLY), "--as", "ada", "--project", "apollo", *arguments, "--tally", url, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


@pytest.mark.postgres
@pytest.mark.slow
def test_two_processes_with_folders_of_their_own_share_one_tally(
    postgres_url: str, tmp_path: Path
) -> None:
    with chroma_server(tmp_path / "chroma") as address, new_database(postgres_url) as url:
        folders = [_folder(tmp_path / name, address) for name in ("one", "two")]
        agents = [
            _agent(folder, url, *names)
            for folder, names in zip(folders, (("ada", "bob"), ("bob", "ada")), strict=True)
        ]
        for agent in agents:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "written\n", agent.communicate()[1]
        for agent in agents:
            said, problems = agent.communicate("\n", timeout=120)
            assert (agent.returncode, said) == (0, "found\n"), problems

        for folder in folders:
            checked = _tally(folder, url, "doctor")
            assert [one for one in checked if one["status"] == "problem"] == []
        assert _tally(folders[0], url, "rebuild-index", "--check")["whole"]
        assert [path.name for folder in folders for path in folder.iterdir()] == [
            "tallystick.toml",
            "tallystick.toml",
        ]


@pytest.mark.postgres
@pytest.mark.slow
def test_a_worker_of_one_machine_does_what_another_one_left(
    postgres_url: str, tmp_path: Path
) -> None:
    """Each by its command: `chroma run`, `tally worker`, `tally remember`, `tally recall`."""
    with chroma_server(tmp_path / "chroma") as address, new_database(postgres_url) as url:
        one, two = (_folder(tmp_path / name, address) for name in ("one", "two"))
        made = _tally(one, url, "init", "--journal-days", "90")
        assert (made["owner"], made["journal_days"]) == (None, 90)
        _tally(one, url, "remember", "The kiln is fired on Mondays.")
        command = [str(TALLY), "--as", "ada", "worker", "--tally", url, "--json"]
        worker = subprocess.Popen(command, cwd=two, stdout=subprocess.PIPE, text=True)
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline().startswith("{")
            until = time.monotonic() + 60
            while _tally(one, url, "recall", "when is the kiln fired?")["path"] != "chroma":
                assert time.monotonic() < until
        finally:
            worker.terminate()
            worker.communicate()
        assert worker.returncode == 0


@pytest.fixture
def compose() -> Any:
    file = ROOT / "compose.yaml"
    if not file.exists():
        pytest.skip("the file is out of reach here")
    return yaml.safe_load(file.read_text())


def test_the_compose_file_is_pinned_private_watched_and_kept(compose: Any) -> None:
    assert set(compose["services"]) == {"postgres", "chroma"}
    for service in compose["services"].values():
        assert re.fullmatch(r"[\w/]+:\d[\w.-]+", service["image"])
        assert service["healthcheck"]["test"][0] == "CMD"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        [[volume, _]] = [mount.split(":") for mount in service["volumes"]]
        assert volume in compose["volumes"]
    assert compose["services"]["chroma"]["environment"]["ANONYMIZED_TELEMETRY"] == "False"
    assert "?" in compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]


def test_the_compose_file_has_the_chroma_that_is_tested(compose: Any) -> None:
    assert compose["services"]["chroma"]["image"] == f"chromadb/chroma:{version('chromadb')}"


def test_the_page_names_what_the_compose_file_starts(compose: Any) -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    database = compose["services"]["postgres"]["environment"]
    user, name = database["POSTGRES_USER"], database["POSTGRES_DB"]
    [port] = compose["services"]["postgres"]["ports"]
    [chroma] = compose["services"]["chroma"]["ports"]
    assert f"postgresql://{user}:$POSTGRES_PASSWORD@127.0.0.1:{port.split(':')[1]}/{name}" in page
    assert f"http://127.0.0.1:{chroma.split(':')[1]}" in page
    for service in compose["services"].values():
        assert service["image"] in page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the check is one of bash")
def test_the_health_check_of_chroma_tells_a_server_from_none(compose: Any, tmp_path: Path) -> None:
    _, *command = compose["services"]["chroma"]["healthcheck"]["test"]
    script = command.pop().replace("$$", "$")

    def healthy(port: str) -> bool:
        here = script.replace("/8000", f"/{port}")
        assert here != script
        return subprocess.run([*command, here], check=False, capture_output=True).returncode == 0

    with chroma_server(tmp_path / "chroma") as address:
        port = address.rsplit(":", 1)[1]
        until = time.monotonic() + 30
        while not healthy(port):
            assert time.monotonic() < until
    assert not healthy(port)
