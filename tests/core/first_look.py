"""The test file to look into first, for each module of the core and of the extensions.

The tests of a module `core/tallystick/ROOM/NAME.py` are in `tests/core/ROOM/test_NAME.py`, those of
`core/tallystick_EXTENSION/NAME.py` in `tests/core/EXTENSION/test_NAME.py`. Modules that are tested
through others are listed here, by the file that tests them first.
`tests/test_design.py` holds that no module is missing.
"""

from __future__ import annotations

FIRST_LOOK = {
    "test_settings.py": "errors/access errors/base errors/models errors/recording errors/storage",
    "learning/test_reflection.py": "learning/reflection_jobs memory/reviews tally/reviews",
    "graph/test_about.py": "memory/dependencies",
    "graph/test_communities.py": "graph/concepts graph/overview graph/summaries "
    "storage/index/communities",
    "graph/test_merges.py": "graph/evidence records/graph",
    "work/test_work.py": "records/kinds records/work work/changing work/choosing "
    "work/completing work/reading work/tasks",
    "synthesis/test_synthesis.py": "memory/artifacts records/synthesis synthesis/checking "
    "synthesis/collecting synthesis/derived synthesis/desk synthesis/drafting synthesis/keeping "
    "synthesis/markdown synthesis/planning synthesis/reading synthesis/synthesis_jobs "
    "synthesis/templates "
    "storage/rows/synthesis_rows storage/engine/synthesis_tables",
    "work/test_linking.py": "work/likeness",
    "memory/test_attributes_and_links.py": "memory/labels memory/links",
    "graph/test_graph.py": "graph/aliases graph/derived graph/mentions graph/name_forms "
    "graph/names graph/reading graph/reading_jobs storage/index/graph",
    "test_extension.py": "graph/extension ingest/contract ingest/extension learning/extension "
    "work/extension steward/extension synthesis/extension comparing/extension",
    "comparing/test_comparing.py": "comparing/comparer comparing/comparisons",
    "formats/test_extracting.py": "formats/decoding formats/html_text formats/markup "
    "formats/pdf_child formats/pdf_text",
    "../integrations/test_sources_files.py": "testing/source_contract",
    "memory/test_matching.py": "access/confirm",
    "memory/test_secrets.py": "upkeep/imported_secrets",
    "ingest/test_imports.py": "ingest/adapters ingest/health ingest/import_runs ingest/ingest "
    "ingest/preparing ingest/previewing ingest/reading ingest/removal ingest/storing "
    "ingest/visible storage/rows/source_rows "
    "errors/sources storage/engine/document_tables",
    "../integrations/test_loaders.py": "ingest/loaded",
    "ingest/test_documents.py": "ingest/adding records/documents storage/rows/documents",
    "steward/test_measures.py": "steward/metrics storage/rows/measures "
    "storage/rows/operation_minutes storage/engine/steward_tables tally/operation_meter",
    "steward/test_alerts.py": "steward/health steward/readings steward/following records/steward "
    "upkeep/alerts",
    "steward/test_events.py": "steward/steward storage/rows/journal_reading",
    "steward/test_repairs.py": "steward/taking_back memory/undo upkeep/backfill jobs/leases",
    "steward/test_loop.py": "steward/requeueing",
    "policy/test_permissions.py": "access/gate access/spaces memory/access_preview tally/spaces",
    "compiler/test_rules.py": "policy/rules",
    "tally/test_async_view.py": "tally/served_verbs",
    "tally/test_arguments.py": "storage/rows/short_ids tally/corrections",
    "access/test_access_tokens.py": "storage/rows/access_tokens",
    "access/test_approvals.py": "storage/rows/approvals tally/approvals",
    "kit/test_enforcement.py": "tally/call_rules tally/enforcement",
    "memory/test_packs.py": "memory/passages",
    "memory/test_working_set.py": "memory/session_state memory/unusual ranking/information",
    "memory/test_recall.py": "memory/context memory/recalled ranking/order ranking/corpus "
    "ranking/question ranking/signals ranking/vocabulary ranking/weights storage/index/search",
    "memory/test_large_scopes.py": "memory/candidates memory/searched memory/recall_request "
    "ranking/frozen ranking/segment storage/index/corpus_cache storage/index/segment_files "
    "storage/index/segments",
    "kit/test_capture.py": "kit/call_tree testing/capture",
    "../callbacks/test_langchain_middleware.py": "kit/rendering testing/adapter_contract",
    "../integrations/test_checked_arguments.py": "policy/tool_schemas",
    "../integrations/test_first_arguments.py": "kit/arguments",
    "../integrations/test_foreign_memories.py": "storage/move/foreign_stores",
    "../integrations/test_remote_tools.py": "kit/elsewhere kit/item_filters",
    "../integrations/test_mcp.py": "kit/confirmations",
    "../integrations/test_hooks.py": "kit/sessions",
    "../integrations/test_providers.py": "kit/conversations kit/plain_tools kit/providers "
    "records/model_calls tally/compile_requests tally/metered_provider tally/model_calls "
    "tokens/prices",
    "../integrations/test_documents.py": "memory/documents",
    "../integrations/test_captured_once.py": "tally/captured_turns",
    "../integrations/test_spooled_hooks.py": "tally/spooled",
    "../integrations/test_hooks_beside_adapters.py": "tally/session_turns",
    "../integrations/test_runtime_tapes.py": "kit/tapes",
    "../integrations/test_openai_agents.py": "kit/agent_runs kit/thread_entries",
    "../integrations/test_request_contract.py": "testing/request_contract",
    "../checkpointers/test_saver.py": "checkpoints/context checkpoints/listing "
    "checkpoints/putting checkpoints/reading checkpoints/threads checkpoints/formats "
    "storage/rows/checkpoints",
    "../checkpointers/test_elements.py": "checkpoints/values storage/rows/trees",
    "../checkpointers/test_saver_safety.py": "checkpoints/codec",
    "../checkpointers/test_saver_threads.py": "checkpoints/removing",
    "../checkpointers/test_saver_damage.py": "checkpoints/verify",
    "storage/engine/test_migrations.py": "storage/engine/migrate storage/engine/tables "
    "upkeep/migration storage/engine/schema storage/engine/derived_tables",
    "compiler/test_selection.py": "compiler/budgeting compiler/compile compiler/conflicts "
    "compiler/dedupe compiler/dependencies compiler/measure compiler/normalize compiler/required "
    "compiler/scoring compiler/state",
    "compiler/test_compression.py": "compiler/shorten ranking/sentences",
    "compiler/test_prefix.py": "compiler/diff compiler/history",
    "compiler/test_layout.py": "compiler/outlines",
    "compiler/test_tool_pairs.py": "compiler/calls compiler/validate",
    "embedding/test_embedding.py": "embedding/adapt embedding/guard embedding/static",
    "memory/test_memory_machine.py": "memory/change memory/memory_write memory/read "
    "memory/remember storage/rows/memories storage/rows/memory_versions",
    "memory/test_sources.py": "storage/rows/sources",
    "memory/test_correct.py": "memory/crossing memory/supersession storage/rows/edges",
    "memory/test_inspect.py": "memory/explore memory/history storage/text/scope_selection",
    "tally/test_memory_tree.py": "memory/files memory/tree_lines",
    "tally/test_memory_tree_conflicts.py": "memory/tree_paths",
    "../integrations/test_anthropic_memory_tool.py": "kit/memory_files",
    "../checkpointers/test_store.py": "memory/fields memory/items storage/rows/items",
    "upkeep/test_sizes.py": "storage/text/sizes",
    "storage/rows/test_objects.py": "storage/engine/blob_stores",
    "upkeep/test_merging.py": "storage/move/merging upkeep/transfers",
    "upkeep/test_hostile_exports.py": "storage/move/archives",
    "upkeep/test_backup.py": "storage/move/restoring",
    "upkeep/test_erase_user.py": "storage/text/users",
    "upkeep/test_erase.py": "storage/text/byte_search storage/text/file_search "
    "storage/text/erasing storage/text/retention storage/rows/working upkeep/copies "
    "upkeep/doctor upkeep/proof upkeep/unfinished storage/engine/containment",
    "operations/test_operations.py": "operations/operation operations/error_status "
    "operations/table operations/tools records/arguments records/wire",
    "jobs/test_chroma_processes.py": "jobs/chroma memory/reconcile",
    "jobs/test_derived.py": "storage/index/marks",
    "jobs/test_item_summaries.py": "memory/item_summaries storage/rows/item_summaries",
    "jobs/test_jobs.py": "jobs/background jobs/embedding jobs/runner jobs/worker "
    "storage/rows/jobs upkeep/jobs tally/jobs storage/rows/job_list",
    "learning/test_learning.py": "learning/conclude learning/learner learning/learning_jobs "
    "learning/material learning/propose learning/providers recorder/outbound tally/models",
    "learning/test_applied.py": "learning/given memory/held_changes",
    "storage/rows/test_proposals.py": "records/learning records/proposals "
    "storage/rows/outbound_calls",
    "storage/test_storage.py": "storage/index/chroma storage/engine/integrity "
    "storage/rows/journal storage/rows/parts storage/rows/scopes storage/rows/settings_rows "
    "storage/rows/spaces storage/store",
    "../integrations/test_event_loop.py": "kit/background",
    "storage/engine/test_processes.py": "storage/engine/liveness storage/engine/location",
    "storage/engine/test_one_writer.py": "storage/engine/group_commit",
    "storage/engine/test_round_trips.py": "storage/engine/batches storage/rows/occurrences",
    "storage/engine/test_lost_connections.py": "storage/engine/outcomes",
    "storage/engine/test_database.py": "storage/engine/database_errors storage/engine/dialects",
    "test_costs.py": "ranking/analyses",
    "ranking/test_ranking.py": "ranking/languages ranking/relevance ranking/vectors ranking/words",
    "recorder/test_payloads.py": "recorder/chain recorder/context recorder/current "
    "recorder/pending recorder/run recorder/write_queue storage/rows/payloads "
    "storage/rows/recordings",
    "recorder/test_verify.py": "recorder/receipts recorder/recordings",
    "recorder/test_bundle.py": "recorder/signing",
    "recorder/test_replay.py": "recorder/answers tally/recordings",
    "records/test_records.py": "records/_base records/canonical records/context "
    "records/identity records/inspection records/memory records/policy records/recording "
    "records/upkeep",
    "policy/test_secret_rules.py": "policy/secret_checks policy/vendor_tokens",
    "policy/test_redaction.py": "policy/gates policy/personal_data",
    "memory/test_isolation.py": "storage/rows/access_log",
    "tally/test_tally_contract.py": "tally/services tally/tally testing/tally_contract",
    "tally/test_bad_input.py": "tally/memory_view",
    "tally/test_spellings.py": "tally/call_checks tally/daily_verbs",
    "tally/test_keep_turn.py": "tally/kept_turns tally/observed_calls",
    "compiler/test_approvals.py": "tally/compiling",
    "storage/rows/test_idempotency.py": "tally/operator",
    "testing/test_suites.py": "testing/fakes",
    "tokens/test_tokens.py": "tokens/estimate tokens/resolve tokens/usage",
}
