"""The server that MCP's published conformance suite is run against: ours, with the suite's fixtures
beside our four tools, behind our guard and on our transport.

Run as a program with the address to listen on and the folder of a tally; who calls without a token
is its owner, which a server for users never allows on a port.
"""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    ClientCapabilities,
    CompleteRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    MissingRequiredClientCapabilityErrorData,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from mcp_types import Tool as ToolOfList
from pydantic import BaseModel, Field

from tallystick import Actor, Tally
from tallystick_mcp import transports
from tallystick_mcp.callers import as_agents
from tallystick_mcp.server import TOOLS, TallyServer
from tallystick_mcp.transports import callers_of_requests, guarded
from tallystick_server.connections import Connections
from tallystick_server.guard import bind_port

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAA"
    "AABJRU5ErkJggg=="
)
SILENCE = base64.b64encode(
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00"
    b"\x02\x00\x10\x00data\x00\x00\x00\x00"
).decode()
_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_PAUSE = 0.05
"""Seconds between notifications, as the suite asks for."""


class FixtureServer(TallyServer):
    """Our server, which has tools of its own beside the four."""

    async def list_tools(self) -> list[ToolOfList]:
        """Return the four tools and the fixtures."""
        return [*await super().list_tools(), *await MCPServer.list_tools(self), _SCHEMA_TOOL]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Call a fixture, or what our server has under the name."""
        if name not in TOOLS and self._tool_manager.get_tool(name) is not None:
            return await MCPServer.call_tool(self, name, arguments, context)
        return await super().call_tool(name, arguments, context)

    async def complete(
        self, params: CompleteRequestParams, context: Context[Any, Any]
    ) -> list[str]:
        """Complete an argument of the fixtures, or of ours."""
        if getattr(params.ref, "name", "").startswith("test_"):
            begun = params.argument.value
            return [each for each in ("paris", "park", "party") if each.startswith(begun)]
        return await super().complete(params, context)


_SCHEMA_TOOL = ToolOfList(
    name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
)


def made(tally: Tally) -> FixtureServer:
    """Return the server with its fixtures."""
    callers = as_agents(callers_of_requests(tally, None))
    server = FixtureServer(tally, callers, name="tallystick-fixtures", approval="ask")
    for add in (_add_contents, _add_notifying, _add_asking, _add_rounds, _add_resources):
        add(server)
    _add_prompts(server)
    _add_requests(server)
    return server


def _text(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


def _form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(text: str, most: int) -> CreateMessageRequest:
    said = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=most))


def _picture() -> ImageContent:
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    inner = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=inner)


def _add_contents(server: FixtureServer) -> None:
    """Add tools that answer with each kind of content."""
    tool = server.tool(structured_output=False)

    @tool
    def test_simple_text() -> Any:
        """Return a text."""
        return _text("This is a simple text response for testing.")

    @tool
    def test_image_content() -> Any:
        """Return a picture."""
        return CallToolResult(content=[_picture()])

    @tool
    def test_audio_content() -> Any:
        """Return a sound."""
        sound = AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")
        return CallToolResult(content=[sound])

    @tool
    def test_embedded_resource() -> Any:
        """Return a resource."""
        text = "This is an embedded resource content."
        return CallToolResult(content=[_embedded("test://embedded-resource", "text/plain", text)])

    @tool
    def test_multiple_content_types() -> Any:
        """Return a text, a picture and a resource."""
        mixed = _embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        )
        text = TextContent(type="text", text="Multiple content types test:")
        return CallToolResult(content=[text, _picture(), mixed])

    @tool
    def test_headers(
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    ) -> Any:
        """Take an argument that a client sends as a header too."""
        return _text(region)

    @tool
    def test_error_handling() -> Any:
        """Fail."""
        raise RuntimeError("This tool intentionally returns an error for testing")


def _add_notifying(server: FixtureServer) -> None:
    """Add tools that tell of themselves while they run."""
    tool = server.tool(structured_output=False)

    @tool
    async def test_tool_with_logging(context: Context[Any, Any]) -> Any:
        """Log three times."""
        for message in ("started", "processing data", "completed"):
            prefix = "Tool" if message == "processing data" else "Tool execution"
            await context.info(f"{prefix} {message}")
            await anyio.sleep(_PAUSE)
        return _text("Logged.")

    @tool
    async def test_tool_with_progress(context: Context[Any, Any]) -> Any:
        """Report progress three times."""
        for progress in (0, 50, 100):
            await context.report_progress(progress, 100)
            await anyio.sleep(_PAUSE)
        return _text("Done.")

    @tool
    async def test_reconnection(context: Context[Any, Any]) -> Any:
        """Close the stream in the middle of the call."""
        await context.close_sse_stream()
        await anyio.sleep(_PAUSE)
        return _text("Reconnection test completed successfully.")

    @tool
    async def test_trigger_tool_change(context: Context[Any, Any]) -> Any:
        """Tell that the tools changed."""
        await context.notify_tools_changed()
        return _text("Told.")

    @tool
    async def test_trigger_prompt_change(context: Context[Any, Any]) -> Any:
        """Tell that the prompts changed."""
        await context.notify_prompts_changed()
        return _text("Told.")

    @tool
    async def test_logging_tool(context: Context[Any, Any]) -> Any:
        """Log at each level."""
        for log in (context.debug, context.info, context.warning, context.error):
            await log("A line of the log.")
        return _text("Logged.")


class _Person(BaseModel):
    username: str
    email: str


def _add_asking(server: FixtureServer) -> None:
    """Add tools that ask the client in the middle of a call."""
    tool = server.tool(structured_output=False)

    async def ask(context: Context[Any, Any], message: str, schema: dict[str, Any]) -> Any:
        answer = await context.session.elicit_form(message, schema)
        content = answer.content if answer.action == "accept" else None
        return _text(f"Elicitation completed: action={answer.action}, content={content}")

    @tool
    async def test_sampling(prompt: str, context: Context[Any, Any]) -> Any:
        """Ask the client's model."""
        said = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        answer = await context.session.create_message([said], max_tokens=100)
        return _text(f"LLM response: {getattr(answer.content, 'text', '')}")

    @tool
    async def test_elicitation(message: str, context: Context[Any, Any]) -> Any:
        """Ask the person."""
        answer = await context.elicit(message, _Person)
        return _text(f"User response: {answer.action}")

    @tool
    async def test_elicitation_sep1034_defaults(context: Context[Any, Any]) -> Any:
        """Ask with defaults."""
        states = ["active", "inactive", "pending"]
        properties = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": states, "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        return await ask(context, "Who?", {"type": "object", "properties": properties})

    @tool
    async def test_elicitation_sep1330_enums(context: Context[Any, Any]) -> Any:
        """Ask with each form of a choice."""
        plain = ["option1", "option2", "option3"]
        titled = [
            {"const": f"value{n}", "title": title}
            for n, title in enumerate(("First Option", "Second Option", "Third Option"), 1)
        ]
        names = ["Option One", "Option Two", "Option Three"]
        several = [{**each, "title": each["title"].replace("Option", "Choice")} for each in titled]
        properties = {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": several}},
        }
        return await ask(context, "Which?", {"type": "object", "properties": properties})

    @tool
    def test_missing_capability(context: Context[Any, Any]) -> Any:
        """Need a client that samples."""
        capabilities = context.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            needed = ClientCapabilities.model_validate({"sampling": {}})
            data = MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message="This needs a client that samples.",
                data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
            )
        return _text("The client samples.")

    @tool
    async def test_streaming_elicitation(context: Context[Any, Any]) -> Any:
        """Report progress, then ask by an answer of its own."""
        await context.report_progress(50, 100)
        return InputRequiredResult(input_requests={"user_name": _form("What is your name?", _NAME)})


def _add_rounds(server: FixtureServer) -> None:
    """Add tools that ask by an answer of their own, to which the client calls again."""
    tool = server.tool(structured_output=False)

    def answered(context: Context[Any, Any], key: str, kind: type[Any]) -> Any:
        answer = (context.input_responses or {}).get(key)
        return answer if isinstance(answer, kind) else None

    def name_in(context: Context[Any, Any], key: str = "user_name") -> str | None:
        answer = answered(context, key, ElicitResult)
        name = (answer.content or {}).get("name") if answer is not None else None
        return name if isinstance(name, str) else None

    @tool
    def test_input_required_result_elicitation(context: Context[Any, Any]) -> Any:
        """Ask for a name."""
        name = name_in(context)
        if name is None:
            form = _form("What is your name?", _NAME)
            return InputRequiredResult(input_requests={"user_name": form})
        return _text(f"Hello, {name}!")

    @tool
    def test_input_required_result_sampling(context: Context[Any, Any]) -> Any:
        """Ask the client's model."""
        answer = answered(context, "capital_question", CreateMessageResult)
        if answer is None:
            question = _sampling("What is the capital of France?", 100)
            return InputRequiredResult(input_requests={"capital_question": question})
        return _text(getattr(answer.content, "text", ""))

    @tool
    def test_input_required_result_list_roots(context: Context[Any, Any]) -> Any:
        """Ask for the client's roots."""
        answer = answered(context, "client_roots", ListRootsResult)
        if answer is None:
            return InputRequiredResult(input_requests={"client_roots": ListRootsRequest()})
        return _text(", ".join(str(root.uri) for root in answer.roots))

    @tool
    def test_input_required_result_request_state(context: Context[Any, Any]) -> Any:
        """Ask, and look at the state that comes back."""
        if context.request_state != "asked" or answered(context, "confirm", ElicitResult) is None:
            schema = {
                "type": "object",
                "properties": {"ok": {"type": "boolean"}},
                "required": ["ok"],
            }
            return InputRequiredResult(
                input_requests={"confirm": _form("Please confirm", schema)}, request_state="asked"
            )
        return _text("state-ok")

    @tool
    def test_input_required_result_tampered_state(context: Context[Any, Any]) -> Any:
        """Ask; a state that somebody changed does not come to a tool."""
        return test_input_required_result_request_state(context)

    @tool
    def test_input_required_result_multiple_inputs(context: Context[Any, Any]) -> Any:
        """Ask three things at once."""
        greeting = answered(context, "greeting", CreateMessageResult)
        roots = answered(context, "client_roots", ListRootsResult)
        name = name_in(context)
        if name is None or greeting is None or roots is None:
            return InputRequiredResult(
                input_requests={
                    "user_name": _form("What is your name?", _NAME),
                    "greeting": _sampling("Generate a greeting", 50),
                    "client_roots": ListRootsRequest(),
                },
                request_state="asked",
            )
        return _text(f"{getattr(greeting.content, 'text', '')} {name}, {len(roots.roots)} roots")

    @tool
    def test_input_required_result_multi_round(context: Context[Any, Any]) -> Any:
        """Ask twice."""
        if context.request_state is None:
            form = _form("Step 1: What is your name?", _NAME)
            return InputRequiredResult(input_requests={"step1": form}, request_state="1")
        if context.request_state == "1":
            colour = {
                "type": "object",
                "properties": {"color": {"type": "string"}},
                "required": ["color"],
            }
            form = _form("Step 2: What is your favorite color?", colour)
            return InputRequiredResult(input_requests={"step2": form}, request_state="2")
        return _text("Both are answered.")

    @tool
    def test_input_required_result_capabilities(context: Context[Any, Any]) -> Any:
        """Ask only in ways that the client has."""
        capabilities = context.client_capabilities
        asked: dict[str, Any] = {}
        if capabilities is not None and capabilities.elicitation is not None:
            asked["user_name"] = _form("What is your name?", _NAME)
        if capabilities is not None and capabilities.sampling is not None:
            asked["greeting"] = _sampling("Generate a greeting", 50)
        if capabilities is not None and capabilities.roots is not None:
            asked["client_roots"] = ListRootsRequest()
        if not asked or any(key in (context.input_responses or {}) for key in asked):
            return _text("Nothing is left to ask.")
        return InputRequiredResult(input_requests=asked)


def _add_resources(server: FixtureServer) -> None:
    """Add resources, one of them by a template."""

    @server.resource("test://static-text", name="static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", name="static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """A picture."""
        return base64.b64decode(PIXEL)

    @server.resource("test://watched-resource", name="watched", mime_type="text/plain")
    def watched() -> str:
        """What is watched."""
        return "Watched."

    @server.resource("test://template/{id}/data", name="template", mime_type="application/json")
    def template(id: str) -> str:
        """What an id stands for."""
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def _add_prompts(server: FixtureServer) -> None:
    """Add prompts with each kind of content."""
    prompt = server.prompt()

    @prompt
    def test_simple_prompt() -> str:
        """Say something simple."""
        return "This is a simple prompt for testing."

    @prompt
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """Say two arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @prompt
    def test_prompt_with_embedded_resource(resourceUri: str) -> Any:
        """Say a resource."""
        text = "Embedded resource content for testing."
        return [
            UserMessage(_embedded(resourceUri, "text/plain", text)),
            UserMessage("Please process the embedded resource above."),
        ]

    @prompt
    def test_prompt_with_image() -> Any:
        """Say a picture."""
        return [UserMessage(_picture()), UserMessage("Please analyze the image above.")]

    @prompt
    def test_input_required_result_prompt(context: Context[Any, Any]) -> Any:
        """Ask for a context."""
        answer = (context.input_responses or {}).get("user_context")
        if not isinstance(answer, ElicitResult):
            schema = {
                "type": "object",
                "properties": {"context": {"type": "string"}},
                "required": ["context"],
            }
            form = _form("What context should the prompt use?", schema)
            return InputRequiredResult(input_requests={"user_context": form})
        return f"With {(answer.content or {}).get('context')} in mind."


def _add_requests(server: FixtureServer) -> None:
    """Add requests that only a server of fixtures answers."""

    async def done(context: Any, params: Any) -> EmptyResult:
        return EmptyResult()

    lowlevel = server._lowlevel_server
    lowlevel.add_request_handler("resources/subscribe", SubscribeRequestParams, done)
    lowlevel.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, done)
    lowlevel.add_request_handler("logging/setLevel", SetLevelRequestParams, done)


def main() -> None:
    """Serve until a signal."""
    port, place = int(sys.argv[1]), sys.argv[2]
    owner = Actor(user="conformance")
    with Tally.open(place, owner=owner, background=False) as tally:
        application = guarded(made(tally), local=owner)
        config = transports._config(application, Connections(tally.settings.max_connections))
        with bind_port(port) as bound:
            uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main()
