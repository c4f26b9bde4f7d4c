#!/usr/bin/env python3
"""A program that speaks the protocol of Claude Code as its SDK expects it, with a scripted model.

The variable SCRIPT says which tools the model calls; the answer repeats what a hook added to the
prompt, what a resumed transcript had, and what became of each call.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

ARGUMENTS = sys.argv[1:]
SCRIPT: dict[str, Any] = json.loads(os.environ.get("SCRIPT", "{}"))
PROJECT = re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(os.getcwd()))
HOME = Path(os.environ.get("CLAUDE_CONFIG_DIR", "")) / "projects" / PROJECT


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Session:
    """One session, which runs until its input ends."""

    def __init__(self) -> None:
        resumed = [each.partition("=")[2] for each in ARGUMENTS if each.startswith("--resume=")]
        self.id = resumed[0] if resumed else str(uuid.uuid4())
        self.hooks: dict[str, Any] = {}
        self.answers: list[str] = []
        self.last: str | None = None
        known = list(Path(os.environ["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{self.id}.jsonl"))
        self.file = known[0] if known else HOME / f"{self.id}.jsonl"
        if resumed:
            lines = self.file.read_text(encoding="utf-8").splitlines()
            self.answers.append(f"resumed {len(lines)}")

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if message["type"] == "control_request":
                request = message["request"]
                if request["subtype"] == "initialize":
                    self.hooks = request["hooks"] or {}
                self.answer(message["request_id"], {"hook_on_failure_supported": True})
            elif message["type"] == "user":
                self.turn(message["message"]["content"])

    def answer(self, request_id: str, response: dict[str, Any]) -> None:
        inner = {"subtype": "success", "request_id": request_id, "response": response}
        say({"type": "control_response", "response": inner})

    def hook(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Ask the hooks of an event; return what each says."""
        said = []
        for matcher in self.hooks.get(event, []):
            for callback in matcher["hookCallbackIds"]:
                given = {
                    "session_id": self.id,
                    "transcript_path": str(self.file),
                    "cwd": "/home/anna/apollo",
                    "hook_event_name": event,
                    **fields,
                }
                request = {
                    "subtype": "hook_callback",
                    "callback_id": callback,
                    "input": given,
                    "tool_use_id": fields.get("tool_use_id"),
                }
                id = str(uuid.uuid4())
                say({"type": "control_request", "request_id": id, "request": request})
                response = json.loads(sys.stdin.readline())["response"]
                said.append(response.get("response", {"error": response.get("error")}))
        return said

    def turn(self, asked: Any) -> None:
        say(
            {
                "type": "system",
                "subtype": "init",
                "session_id": self.id,
                "claude_code_version": "99.0.0",
            }
        )
        prompt = asked if isinstance(asked, str) else asked[0]["text"]
        for said in self.hook("UserPromptSubmit", prompt=prompt):
            self.answers.append(said.get("hookSpecificOutput", {}).get("additionalContext", ""))
        lines = [self.line("user", prompt)]
        for number, call in enumerate(SCRIPT.get("calls", [])):
            self.call(call, f"call-{self.id}-{number}")
        for kind in SCRIPT.get("subagents", []):
            agent = {"agent_id": f"agent-{kind}", "agent_type": kind}
            for said in self.hook("SubagentStart", **agent):
                self.answers.append(said.get("hookSpecificOutput", {}).get("additionalContext", ""))
            path = self.file.with_suffix("") / "subagents" / f"agent-{kind}.jsonl"
            self.write(path, [{**self.line("assistant", "done"), "isSidechain": True}])
            self.hook(
                "SubagentStop",
                **agent,
                stop_hook_active=False,
                agent_transcript_path=str(path),
                last_assistant_message=f"{kind} is done",
            )
        answer = SCRIPT.get("answer", "I noted it.")
        text = "\n".join([*filter(None, self.answers), answer])
        lines.append(self.line("assistant", answer))
        self.write(self.file, lines)
        self.hook("Stop", stop_hook_active=False)
        said = {
            "role": "assistant",
            "model": "scripted",
            "content": [{"type": "text", "text": text}],
        }
        say({"type": "assistant", "message": said, "session_id": self.id})
        say(
            {
                "type": "result",
                "subtype": "success",
                "duration_ms": 1,
                "duration_api_ms": 1,
                "is_error": False,
                "num_turns": 1,
                "session_id": self.id,
                "result": text,
            }
        )

    def call(self, call: dict[str, Any], id: str) -> None:
        fields = {"tool_name": call["name"], "tool_input": call["input"], "tool_use_id": id}
        given = call["input"]
        for said in self.hook("PreToolUse", **fields):
            output = said.get("hookSpecificOutput", {})
            decision = output.get("permissionDecision")
            given = output.get("updatedInput", given)
            if decision is not None or "error" in said:
                reason = output.get("permissionDecisionReason", said.get("error"))
                self.answers.append(f"{call['name']} {decision}: {reason}")
            if decision == "deny" or "error" in said:
                return
        self.answers.append(f"{call['name']} ran {json.dumps(given)}")
        if "error" in call:
            self.hook("PostToolUseFailure", **fields, error=call["error"])
        else:
            self.hook("PostToolUse", **fields, tool_response=call.get("result", "ok"))

    def line(self, kind: str, text: str) -> dict[str, Any]:
        self.last, before = str(uuid.uuid4()), self.last
        return {
            "type": kind,
            "uuid": self.last,
            "parentUuid": before,
            "sessionId": self.id,
            "timestamp": "2026-11-27T12:00:00.000Z",
            "cwd": "/home/anna/apollo",
            "message": {"role": kind, "content": text},
        }

    def write(self, path: Path, lines: list[dict[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        if "--session-mirror" in ARGUMENTS:
            say({"type": "transcript_mirror", "filePath": str(path), "entries": lines})


if __name__ == "__main__":
    Session().run()
