"""The kit for adapters: actors, call trees, stream times, tool calls, rules, recall, messages,
tapes.
"""

from tallystick.kit.arguments import (
    check_actor,
    check_config,
    check_count,
    check_embedder,
    check_flag,
    check_model,
    check_names,
    check_player,
    check_rules,
    check_tally,
    check_word,
    describe_value,
)
from tallystick.kit.background import Background, on_close
from tallystick.kit.binder import ActorSource, Binder, named_actor
from tallystick.kit.call_tree import (
    AnswerFacts,
    OpenCall,
    RootRun,
    StreamTimes,
    answer_summary,
    begin_call,
)
from tallystick.kit.capture import Capture, Speakers, checked_speakers, is_nested
from tallystick.kit.confirmations import confirm_token, confirmed_version, refuse_unconfirmed
from tallystick.kit.conversations import AGENT_CONFIG, conversation_context
from tallystick.kit.elsewhere import TallyElsewhere, run_memory_tool
from tallystick.kit.enforcement import (
    claim_enforcement,
    decide_as_person,
    has_rules,
    is_enforced,
    judge_tool_call,
    plain_arguments,
    record_unenforced,
    refuse_unenforced,
    refuse_unenforced_model_call,
    register_enforcer,
    release_enforcement,
    rules_requests,
    with_optional,
)
from tallystick.kit.frames import framed_hits
from tallystick.kit.job_running import JobRunning
from tallystick.kit.naming import default_agent_name, goal_of_thread
from tallystick.kit.parameters import (
    recordable_metadata,
    recordable_parameters,
    recordable_tools,
)
from tallystick.kit.plain_tools import (
    PlainApproval,
    PlainMemoryTools,
    ToolQuestion,
    memory_tool_specs,
    text_of,
    tool_arguments,
)
from tallystick.kit.providers import (
    SdkProvider,
    TapedProvider,
    check_model_name,
    check_pairs,
    images_of,
    names_in,
    native_part,
    response_facts,
    split_request,
    with_builtin_tools,
)
from tallystick.kit.remote_binder import RemoteBinder, binder_of
from tallystick.kit.rendering import (
    arguments_of,
    changed_items,
    dump_model,
    json_value,
    message_item,
)
from tallystick.kit.request_compiling import (
    MEMORIES,
    MEMORY_BUDGET,
    ContextMode,
    RequestCompiler,
    RequestParts,
    memory_text,
)
from tallystick.kit.sessions import is_first_to_record, note_seen_again, recorded_elsewhere
from tallystick.kit.tool_calls import (
    ToolCall,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
)
from tallystick.kit.turn_recall import recall_for_turn
from tallystick.kit.wire_tap import attribute_requests, tap
from tallystick.policy.tool_schemas import SchemaReader
from tallystick.storage.move.foreign_stores import require_tables, rows_of_store
from tallystick.tally.call_rules import CallKind, enforcing
from tallystick.tally.session_turns import OBSERVER

__all__ = [
    "AGENT_CONFIG",
    "AnswerFacts",
    "answer_summary",
    "text_of",
    "tool_arguments",
    "memory_tool_specs",
    "conversation_context",
    "ToolQuestion",
    "PlainMemoryTools",
    "PlainApproval",
    "with_builtin_tools",
    "rules_requests",
    "with_optional",
    "response_facts",
    "native_part",
    "images_of",
    "check_pairs",
    "check_model_name",
    "SdkProvider",
    "TapedProvider",
    "names_in",
    "split_request",
    "ActorSource",
    "Background",
    "Binder",
    "CallKind",
    "Capture",
    "ContextMode",
    "JobRunning",
    "MEMORIES",
    "MEMORY_BUDGET",
    "OBSERVER",
    "OpenCall",
    "RemoteBinder",
    "RequestCompiler",
    "RequestParts",
    "RootRun",
    "TallyElsewhere",
    "binder_of",
    "run_memory_tool",
    "Speakers",
    "StreamTimes",
    "ToolCall",
    "arguments_of",
    "attribute_requests",
    "begin_call",
    "changed_items",
    "check_actor",
    "check_config",
    "check_count",
    "check_embedder",
    "check_flag",
    "check_model",
    "check_names",
    "check_player",
    "check_rules",
    "check_tally",
    "check_word",
    "checked_speakers",
    "claim_enforcement",
    "confirm_token",
    "confirmed_version",
    "decide_as_person",
    "default_agent_name",
    "describe_value",
    "dump_model",
    "enforcing",
    "framed_hits",
    "goal_of_thread",
    "has_rules",
    "is_enforced",
    "is_nested",
    "json_value",
    "judge_tool_call",
    "memory_text",
    "message_item",
    "named_actor",
    "is_first_to_record",
    "note_seen_again",
    "on_close",
    "recall_for_turn",
    "record_approval",
    "recorded_elsewhere",
    "record_tool_call",
    "record_tool_error",
    "record_tool_result",
    "SchemaReader",
    "record_unenforced",
    "recordable_metadata",
    "recordable_parameters",
    "recordable_tools",
    "refuse_unenforced",
    "refuse_unenforced_model_call",
    "plain_arguments",
    "register_enforcer",
    "release_enforcement",
    "require_tables",
    "rows_of_store",
    "tap",
    "refuse_unconfirmed",
]
