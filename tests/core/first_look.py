"""The test file to look into first, for each module of the core.

The tests of a module `core/tallystick/ROOM/NAME.py` are in `tests/core/ROOM/test_NAME.py`. Modules
that are tested through others are listed here, by the file that tests them first.
`tests/test_design.py` holds that no module is missing.
"""

from __future__ import annotations

FIRST_LOOK = {
    "test_settings.py": "errors remedies user_state",
    "pipeline/test_reflection.py": "pipeline/reflection_jobs pipeline/reviews tally/reviews",
    "graph/test_about.py": "memory/dependencies",
    "graph/test_communities.py": "graph/concepts graph/overview pipeline/summaries "
    "storage/communities",
    "graph/test_graph.py": "graph/aliases graph/names "
    "graph/reading ranking/name_forms memory/mentions pipeline/graph storage/graph",
    "memory/test_matching.py": "access/confirm",
    "memory/test_pins.py": "memory/protection",
    "memory/test_secrets.py": "upkeep/imported_secrets",
    "policy/test_permissions.py": "access/gate access/spaces memory/access_preview tally/spaces",
    "compiler/test_rules.py": "policy/rules policy/rule_checks",
    "policy/test_arguments.py": "policy/tool_classes",
    "tally/test_async_view.py": "tally/served_verbs",
    "tally/test_arguments.py": "access/short_ids storage/short_ids tally/corrections records/html",
    "access/test_access_tokens.py": "records/access_tokens storage/access_tokens",
    "access/test_approvals.py": "storage/approvals tally/approvals",
    "adapters/test_enforcement.py": "access/enforcers tally/call_rules tally/enforcement",
    "memory/test_packs.py": "memory/passages ranking/passages",
    "memory/test_recall.py": "access/visibility memory/context "
    "ranking/order ranking/corpus ranking/question ranking/likeness ranking/signals "
    "ranking/vocabulary storage/search",
    "memory/test_large_scopes.py": "memory/candidates memory/recall_request ranking/frozen "
    "ranking/segment storage/corpus_cache storage/segment_files storage/segments",
    "adapters/test_capture.py": "adapters/call_tree adapters/stream_times adapters/tool_calls "
    "testing/capture testing/comparison",
    "../callbacks/test_langchain_middleware.py": "adapters/rendering testing/adapter_contract",
    "../integrations/test_checked_arguments.py": "policy/tool_schemas",
    "../integrations/test_first_arguments.py": "adapters/arguments",
    "../integrations/test_dashboard.py": "adapters/words",
    "memory/test_warming.py": "adapters/warming",
    "../integrations/test_dashboard_days.py": "memory/activity",
    "../integrations/test_foreign_memories.py": "adapters/foreign_memories adapters/journaling "
    "storage/foreign_stores",
    "../integrations/test_remote_tools.py": "adapters/elsewhere adapters/item_filters "
    "adapters/remote_binder",
    "../integrations/test_dbos.py": "adapters/job_running",
    "../integrations/test_mcp.py": "adapters/confirmations",
    "../integrations/test_hooks.py": "adapters/sessions",
    "../integrations/test_providers.py": "adapters/conversations adapters/plain_tools "
    "adapters/providers records/model_calls tally/compile_requests tally/model_calls "
    "tokens/prices",
    "../integrations/test_documents.py": "memory/documents",
    "../integrations/test_captured_once.py": "tally/captured_turns",
    "../integrations/test_hooks_beside_adapters.py": "tally/session_turns",
    "adapters/test_turn_recall.py": "tally/turn_hits",
    "../integrations/test_runtime_tapes.py": "adapters/tapes",
    "../callbacks/test_compile_messages.py": "adapters/configurable",
    "../integrations/test_recorded_parameters.py": "adapters/parameters",
    "../checkpointers/test_saver.py": "adapters/checkpointing checkpoints/context "
    "checkpoints/listing checkpoints/putting checkpoints/reading checkpoints/stored "
    "checkpoints/threads checkpoints/formats storage/checkpoints",
    "../checkpointers/test_elements.py": "checkpoints/values storage/trees",
    "../checkpointers/test_saver_safety.py": "checkpoints/codec checkpoints/dictionary",
    "../checkpointers/test_saver_threads.py": "checkpoints/metadata_filter checkpoints/removing "
    "storage/checkpoint_scan",
    "../checkpointers/test_saver_damage.py": "checkpoints/verify",
    "storage/test_migrations.py": "storage/migrate storage/tables upkeep/migration",
    "compiler/test_selection.py": "compiler/budgeting compiler/candidates compiler/classes "
    "compiler/compile compiler/conflicts compiler/dedupe compiler/dependencies compiler/measure "
    "compiler/normalize compiler/required compiler/scoring compiler/state",
    "compiler/test_compression.py": "compiler/code compiler/shorten ranking/sentences",
    "compiler/test_prefix.py": "compiler/diff compiler/history",
    "compiler/test_layout.py": "compiler/outline",
    "compiler/test_tool_pairs.py": "compiler/calls compiler/validate",
    "embedding/test_embedding.py": "embedding/adapt embedding/guard embedding/static",
    "memory/test_memory_machine.py": "memory/change memory/memory_write memory/read "
    "memory/remember storage/memories",
    "memory/test_sources.py": "storage/sources",
    "memory/test_correct.py": "memory/crossing memory/supersession storage/edges",
    "test_ports.py": "memory/rerank",
    "memory/test_inspect.py": "memory/explore memory/history storage/scope_selection",
    "../checkpointers/test_store.py": "memory/fields memory/items storage/items",
    "upkeep/test_sizes.py": "storage/sizes",
    "storage/test_objects.py": "storage/attached storage/blob_stores",
    "upkeep/test_merging.py": "storage/merging upkeep/transfers",
    "upkeep/test_hostile_exports.py": "storage/archives",
    "upkeep/test_backup.py": "storage/file_copies storage/restoring",
    "upkeep/test_erase_user.py": "storage/users",
    "upkeep/test_erase.py": "storage/byte_search storage/file_search storage/erasing "
    "storage/retention storage/working upkeep/copies upkeep/doctor upkeep/operator_scopes "
    "upkeep/proof",
    "operations/test_operations.py": "operations/arguments operations/operation "
    "operations/error_status operations/table operations/tools records/arguments records/wire",
    "pipeline/test_chroma_processes.py": "pipeline/chroma pipeline/reconcile",
    "pipeline/test_derived.py": "storage/marks",
    "pipeline/test_jobs.py": "pipeline/background pipeline/embedding pipeline/runner "
    "pipeline/worker records/jobs storage/jobs upkeep/jobs tally/jobs tally/later_replays",
    "pipeline/test_learning.py": "pipeline/decide pipeline/extract pipeline/models "
    "pipeline/outbound pipeline/propose pipeline/providers tally/learning upkeep/outbound",
    "../integrations/test_learning_models.py": "adapters/learning_models",
    "storage/test_proposals.py": "records/proposals storage/outbound_calls",
    "storage/test_storage.py": "storage/chroma "
    "storage/chroma_layout storage/integrity storage/journal "
    "storage/parts storage/rows storage/scopes storage/settings_rows storage/spaces storage/store",
    "../integrations/test_event_loop.py": "adapters/background",
    "../integrations/test_server.py": "adapters/serving",
    "../integrations/test_server_admission.py": "adapters/connections",
    "storage/test_read_only.py": "storage/losses",
    "storage/test_processes.py": "storage/liveness storage/location",
    "storage/test_one_writer.py": "storage/group_commit",
    "storage/test_round_trips.py": "storage/batches storage/occurrences",
    "storage/test_lost_connections.py": "storage/outcomes",
    "storage/test_database.py": "storage/database_errors storage/dialects",
    "ranking/test_ranking.py": "ranking/headers "
    "ranking/languages ranking/relevance ranking/vectors ranking/weights ranking/words",
    "recorder/test_payloads.py": "recorder/chain recorder/context recorder/pending recorder/run "
    "recorder/text_memo recorder/write_queue storage/payloads storage/recordings",
    "recorder/test_verify.py": "recorder/receipts recorder/recordings",
    "recorder/test_bundle.py": "recorder/signing",
    "recorder/test_replay.py": "recorder/answers tally/recordings",
    "records/test_records.py": "explanations records/_base records/answers records/canonical "
    "records/context "
    "records/correction records/identity records/inspection records/journal records/memory "
    "records/policy records/recording records/source records/space records/tape records/upkeep",
    "policy/test_secret_rules.py": "policy/secret_checks policy/vendor_tokens",
    "policy/test_redaction.py": "policy/personal_data policy/redaction_rule",
    "memory/test_isolation.py": "storage/access_log",
    "tally/test_tally_contract.py": "tally/services tally/tally testing/tally_contract",
    "tally/test_bad_input.py": "tally/memory_view",
    "tally/test_spellings.py": "tally/daily_verbs",
    "tally/test_keep_turn.py": "tally/kept_turns tally/observed_calls",
    "compiler/test_approvals.py": "tally/compiling",
    "storage/test_idempotency.py": "tally/operator",
    "testing/test_suites.py": "testing/fakes",
    "tokens/test_tokens.py": "tokens/cached tokens/estimate tokens/resolve tokens/tiktoken "
    "tokens/usage",
}
"""Test files below `tests/core`, each with the modules that it tests first beside its own."""
