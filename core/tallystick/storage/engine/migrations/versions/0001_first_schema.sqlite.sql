-- The tables and indexes of release 0.1.0 on SQLite. Released: never edited.

CREATE TABLE access_log (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    surface TEXT NOT NULL,
    operation TEXT NOT NULL,
    scopes TEXT NOT NULL,
    results INTEGER NOT NULL
);

CREATE TABLE access_tokens (
    id TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_access_tokens PRIMARY KEY (id),
    CONSTRAINT uq_access_tokens_digest UNIQUE (digest)
);

CREATE TABLE anchors (
    stream TEXT NOT NULL,
    count BIGINT NOT NULL,
    head TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT pk_anchors PRIMARY KEY (stream)
);

CREATE TABLE journal (
    sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    audit_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    position BIGINT NOT NULL,
    event TEXT NOT NULL,
    subject_id TEXT,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    digest TEXT NOT NULL,
    texts TEXT,
    salt BLOB,
    CONSTRAINT uq_journal_stream_position UNIQUE (stream, position),
    CONSTRAINT uq_journal_audit_id UNIQUE (audit_id)
);

CREATE INDEX ix_journal_subject_id_sequence ON journal (subject_id, sequence);

CREATE TABLE operation_minutes (
    minute BIGINT NOT NULL,
    kind TEXT NOT NULL,
    count BIGINT NOT NULL,
    micros BIGINT NOT NULL,
    buckets TEXT NOT NULL,
    CONSTRAINT pk_operation_minutes PRIMARY KEY (minute, kind)
);

CREATE TABLE scopes (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    secret BLOB NOT NULL,
    revision BIGINT DEFAULT '0' NOT NULL,
    floor BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT pk_scopes PRIMARY KEY (id),
    CONSTRAINT uq_scopes_name UNIQUE (name)
);

CREATE TABLE settings (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    CONSTRAINT pk_settings PRIMARY KEY (name)
);

CREATE TABLE spaces (
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_spaces PRIMARY KEY (id),
    CONSTRAINT uq_spaces_scope UNIQUE (scope)
);

CREATE TABLE streams (
    name TEXT NOT NULL,
    count BIGINT NOT NULL,
    head TEXT NOT NULL,
    CONSTRAINT pk_streams PRIMARY KEY (name)
);

CREATE TABLE approvals (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    arguments TEXT,
    digest TEXT NOT NULL,
    rule_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    surface TEXT NOT NULL,
    run_id TEXT,
    step_id TEXT,
    receipts TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    decided_by TEXT,
    decided_reason TEXT,
    decided_at BIGINT,
    used_at BIGINT,
    schema_version INTEGER NOT NULL,
    CONSTRAINT pk_approvals PRIMARY KEY (id),
    CONSTRAINT fk_approvals_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_approvals_run_id ON approvals (run_id);

CREATE INDEX ix_approvals_scope_id_state_created_at ON approvals (scope_id, state, created_at);

CREATE UNIQUE INDEX uq_approvals_open ON approvals (scope_id, digest) WHERE state IN ('pending', 'granted');

CREATE TABLE communities (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    level INTEGER NOT NULL,
    parent TEXT,
    fingerprint TEXT,
    vector BLOB,
    CONSTRAINT pk_communities PRIMARY KEY (id),
    CONSTRAINT fk_communities_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_communities_scope_id ON communities (scope_id);

CREATE TABLE derived (
    scope_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    revision BIGINT NOT NULL,
    doc BIGINT NOT NULL,
    filling BOOLEAN NOT NULL,
    CONSTRAINT pk_derived PRIMARY KEY (scope_id, name),
    CONSTRAINT fk_derived_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE documents (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    content_key TEXT,
    words INTEGER NOT NULL,
    occurred_at BIGINT,
    crawled_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    removed_at BIGINT,
    created_by TEXT NOT NULL,
    CONSTRAINT pk_documents PRIMARY KEY (id),
    CONSTRAINT fk_documents_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_documents_scope_id_created_at ON documents (scope_id, created_at);

CREATE TABLE idempotency (
    scope_id INTEGER NOT NULL,
    operation TEXT NOT NULL,
    "key" TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    result TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT pk_idempotency PRIMARY KEY (scope_id, operation, "key"),
    CONSTRAINT fk_idempotency_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE jobs (
    id TEXT NOT NULL,
    scope_id INTEGER,
    kind TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    payload TEXT NOT NULL,
    actor TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    waits INTEGER NOT NULL,
    leases INTEGER NOT NULL,
    turn BIGINT NOT NULL,
    due_at BIGINT,
    leased_by TEXT,
    progress INTEGER NOT NULL,
    total INTEGER,
    cost TEXT NOT NULL,
    result TEXT,
    error_code TEXT,
    error_text TEXT,
    trail TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT pk_jobs PRIMARY KEY (id),
    CONSTRAINT uq_jobs_kind_subject_id_version UNIQUE (kind, subject_id, version),
    CONSTRAINT fk_jobs_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_jobs_open ON jobs (kind, scope_id, priority, created_at, id, due_at) WHERE due_at IS NOT NULL;

CREATE INDEX ix_jobs_scope_id_turn ON jobs (scope_id, turn);

CREATE INDEX ix_jobs_subject_id ON jobs (subject_id);

CREATE INDEX ix_jobs_turn ON jobs (turn);

CREATE TABLE memories (
    doc INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    content_key TEXT NOT NULL,
    state TEXT NOT NULL,
    version INTEGER NOT NULL,
    pinned BOOLEAN NOT NULL,
    conversation TEXT,
    position BIGINT,
    occurred_at BIGINT,
    expires_at BIGINT,
    extraction_status TEXT NOT NULL,
    source_run_id TEXT,
    source_step_ids TEXT NOT NULL,
    access_count INTEGER DEFAULT '0' NOT NULL,
    last_accessed BIGINT,
    forgotten_at BIGINT,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT,
    schema_version INTEGER NOT NULL,
    valid_from BIGINT,
    valid_until BIGINT,
    locked_until BIGINT,
    CONSTRAINT uq_memories_id UNIQUE (id),
    CONSTRAINT fk_memories_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_memories_pinned ON memories (scope_id, state, doc) WHERE pinned;

CREATE INDEX ix_memories_scope_id_state_doc ON memories (scope_id, state, doc);

CREATE UNIQUE INDEX uq_memories_active_statement ON memories (scope_id, kind, content_key) WHERE state = 'active' AND conversation IS NULL;

CREATE UNIQUE INDEX uq_memories_turn ON memories (scope_id, conversation, position) WHERE conversation IS NOT NULL;

CREATE TABLE outbound_calls (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT,
    local BOOLEAN NOT NULL,
    subject_id TEXT,
    job_id TEXT,
    outcome TEXT NOT NULL,
    characters BIGINT NOT NULL,
    redacted INTEGER NOT NULL,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    micros BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT pk_outbound_calls PRIMARY KEY (id),
    CONSTRAINT fk_outbound_calls_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_outbound_calls_at ON outbound_calls (at);

CREATE INDEX ix_outbound_calls_scope_id_at ON outbound_calls (scope_id, at);

CREATE TABLE partitions (
    scope_id INTEGER NOT NULL,
    texts INTEGER NOT NULL,
    made_at BIGINT NOT NULL,
    CONSTRAINT pk_partitions PRIMARY KEY (scope_id),
    CONSTRAINT fk_partitions_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE parts (
    scope_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT pk_parts PRIMARY KEY (scope_id, "key"),
    CONSTRAINT fk_parts_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE proposals (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    origin TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    payload TEXT,
    confidence INTEGER NOT NULL,
    sources TEXT NOT NULL,
    derived_from TEXT NOT NULL,
    target_id TEXT,
    target_version INTEGER,
    made_id TEXT,
    suggested_scope TEXT,
    provider TEXT NOT NULL,
    model TEXT,
    prompt_version TEXT,
    job_id TEXT,
    run_id TEXT,
    step_id TEXT,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    decided_at BIGINT,
    decided_by TEXT,
    decided_reason TEXT,
    schema_version INTEGER NOT NULL,
    CONSTRAINT pk_proposals PRIMARY KEY (id),
    CONSTRAINT fk_proposals_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_proposals_scope_id_state_created_at ON proposals (scope_id, state, created_at);

CREATE INDEX ix_proposals_target_id ON proposals (target_id);

CREATE TABLE recall_segments (
    scope_id INTEGER NOT NULL,
    revision BIGINT NOT NULL,
    name TEXT NOT NULL,
    piece INTEGER NOT NULL,
    data BLOB NOT NULL,
    CONSTRAINT pk_recall_segments PRIMARY KEY (scope_id, revision, name, piece),
    CONSTRAINT fk_recall_segments_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE runs (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    agent_name TEXT NOT NULL,
    domain TEXT,
    user_goal TEXT,
    retention TEXT NOT NULL,
    metadata TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    status TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    process TEXT,
    gaps INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_runs PRIMARY KEY (id),
    CONSTRAINT fk_runs_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_runs_scope_id_started_at ON runs (scope_id, started_at);

CREATE TABLE source_imports (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    adapter TEXT NOT NULL,
    adapter_version TEXT NOT NULL,
    privacy_class TEXT NOT NULL,
    target TEXT NOT NULL,
    corpus TEXT NOT NULL,
    corpus_version TEXT,
    title TEXT NOT NULL,
    lists_all BOOLEAN NOT NULL,
    is_resync BOOLEAN NOT NULL,
    options TEXT NOT NULL,
    schedule TEXT,
    due_at BIGINT,
    state TEXT NOT NULL,
    cursor TEXT,
    total INTEGER,
    counters TEXT NOT NULL,
    worked BIGINT NOT NULL,
    error_code TEXT,
    error_text TEXT,
    job_id TEXT,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT,
    CONSTRAINT pk_source_imports PRIMARY KEY (id),
    CONSTRAINT fk_source_imports_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_source_imports_due_at ON source_imports (due_at);

CREATE INDEX ix_source_imports_scope_id_source_created_at ON source_imports (scope_id, source, created_at);

CREATE TABLE source_records (
    scope_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    record_id TEXT NOT NULL,
    version TEXT,
    dedupe TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    detail TEXT,
    document_id TEXT,
    import_id TEXT NOT NULL,
    is_gone BOOLEAN NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT pk_source_records PRIMARY KEY (scope_id, source, record_id),
    CONSTRAINT fk_source_records_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_source_records_document_id ON source_records (document_id);

CREATE INDEX ix_source_records_import_id ON source_records (import_id);

CREATE INDEX ix_source_records_scope_id_dedupe ON source_records (scope_id, dedupe);

CREATE TABLE sources (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    source_type TEXT NOT NULL,
    uri TEXT,
    title TEXT,
    source_version TEXT,
    content_hash TEXT NOT NULL,
    reference TEXT NOT NULL,
    privacy_class TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    occurred_at BIGINT,
    lifecycle_state TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    CONSTRAINT pk_sources PRIMARY KEY (id),
    CONSTRAINT fk_sources_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_sources_scope_id_content_hash ON sources (scope_id, content_hash);

CREATE TABLE synthesis_runs (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    stage TEXT NOT NULL,
    body TEXT NOT NULL,
    job_id TEXT,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT pk_synthesis_runs PRIMARY KEY (id),
    CONSTRAINT fk_synthesis_runs_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_synthesis_runs_scope_id_created_at ON synthesis_runs (scope_id, created_at);

CREATE TABLE threads (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    scope_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    epoch INTEGER DEFAULT '0' NOT NULL,
    puts BIGINT DEFAULT '0' NOT NULL,
    states BIGINT DEFAULT '0' NOT NULL,
    seal TEXT DEFAULT '' NOT NULL,
    writer TEXT DEFAULT '' NOT NULL,
    lifetime BIGINT,
    expires_at BIGINT,
    CONSTRAINT uq_threads_scope_id_name UNIQUE (scope_id, name),
    CONSTRAINT fk_threads_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_threads_scope_id_expires_at ON threads (scope_id, expires_at);

CREATE TABLE tree_keys (
    scope_id INTEGER NOT NULL,
    cipher TEXT NOT NULL,
    sealed BLOB NOT NULL,
    CONSTRAINT pk_tree_keys PRIMARY KEY (scope_id, cipher),
    CONSTRAINT fk_tree_keys_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE tree_parts (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    scope_id INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT fk_tree_parts_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE UNIQUE INDEX uq_tree_parts_digest ON tree_parts (scope_id, digest);

CREATE TABLE working (
    scope_id INTEGER NOT NULL,
    lifetime TEXT NOT NULL,
    holder TEXT NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    created_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    CONSTRAINT pk_working PRIMARY KEY (scope_id, lifetime, holder, name),
    CONSTRAINT fk_working_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_working_expires_at ON working (expires_at);

CREATE TABLE attachments (
    document_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    content_key TEXT,
    CONSTRAINT pk_attachments PRIMARY KEY (document_id, position),
    CONSTRAINT fk_attachments_document_id FOREIGN KEY(document_id) REFERENCES documents (id),
    CONSTRAINT fk_attachments_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE TABLE chunks (
    doc INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    document_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    is_current BOOLEAN NOT NULL,
    CONSTRAINT pk_chunks PRIMARY KEY (doc),
    CONSTRAINT fk_chunks_doc FOREIGN KEY(doc) REFERENCES memories (doc),
    CONSTRAINT fk_chunks_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id),
    CONSTRAINT fk_chunks_document_id FOREIGN KEY(document_id) REFERENCES documents (id)
);

CREATE INDEX ix_chunks_document_id_position ON chunks (document_id, position);

CREATE TABLE community_members (
    community_id TEXT NOT NULL,
    doc INTEGER NOT NULL,
    CONSTRAINT pk_community_members PRIMARY KEY (community_id, doc),
    CONSTRAINT fk_community_members_community_id FOREIGN KEY(community_id) REFERENCES communities (id),
    CONSTRAINT fk_community_members_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE INDEX ix_community_members_doc ON community_members (doc);

CREATE TABLE edges (
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    from_doc INTEGER NOT NULL,
    to_doc INTEGER NOT NULL,
    confidence INTEGER NOT NULL,
    reason TEXT,
    evidence TEXT NOT NULL,
    valid_from BIGINT,
    valid_until BIGINT,
    created_at BIGINT NOT NULL,
    schema_version INTEGER NOT NULL,
    CONSTRAINT pk_edges PRIMARY KEY (id),
    CONSTRAINT uq_edges_kind_from_doc_to_doc UNIQUE (kind, from_doc, to_doc),
    CONSTRAINT fk_edges_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id),
    CONSTRAINT fk_edges_from_doc FOREIGN KEY(from_doc) REFERENCES memories (doc),
    CONSTRAINT fk_edges_to_doc FOREIGN KEY(to_doc) REFERENCES memories (doc)
);

CREATE INDEX ix_edges_to_doc ON edges (to_doc);

CREATE TABLE entity_names (
    scope_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    doc INTEGER NOT NULL,
    type TEXT NOT NULL,
    fingerprint TEXT,
    vector BLOB,
    CONSTRAINT pk_entity_names PRIMARY KEY (scope_id, name),
    CONSTRAINT fk_entity_names_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id),
    CONSTRAINT fk_entity_names_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE INDEX ix_entity_names_doc ON entity_names (doc);

CREATE TABLE item_summaries (
    doc INTEGER NOT NULL,
    digest TEXT NOT NULL,
    summary TEXT NOT NULL,
    made_by TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    CONSTRAINT pk_item_summaries PRIMARY KEY (doc),
    CONSTRAINT fk_item_summaries_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE INDEX ix_item_summaries_digest ON item_summaries (digest);

CREATE TABLE memory_sources (
    doc INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    CONSTRAINT pk_memory_sources PRIMARY KEY (doc, source_id),
    CONSTRAINT fk_memory_sources_doc FOREIGN KEY(doc) REFERENCES memories (doc),
    CONSTRAINT fk_memory_sources_source_id FOREIGN KEY(source_id) REFERENCES sources (id)
)
 WITHOUT ROWID;

CREATE INDEX ix_memory_sources_source_id ON memory_sources (source_id);

CREATE TABLE memory_versions (
    doc INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body TEXT,
    salt BLOB,
    commitment TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    erased_at BIGINT,
    CONSTRAINT pk_memory_versions PRIMARY KEY (doc, version),
    CONSTRAINT fk_memory_versions_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE TABLE relations (
    id INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    from_doc INTEGER NOT NULL,
    name TEXT NOT NULL,
    to_doc INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT pk_relations PRIMARY KEY (id),
    CONSTRAINT uq_relations_from_doc_name_to_doc UNIQUE (from_doc, name, to_doc),
    CONSTRAINT fk_relations_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id),
    CONSTRAINT fk_relations_from_doc FOREIGN KEY(from_doc) REFERENCES memories (doc),
    CONSTRAINT fk_relations_to_doc FOREIGN KEY(to_doc) REFERENCES memories (doc)
);

CREATE INDEX ix_relations_to_doc ON relations (to_doc);

CREATE TABLE search_text (
    doc INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    revision BIGINT NOT NULL,
    words TEXT,
    marks INTEGER NOT NULL,
    speaker TEXT,
    tags TEXT NOT NULL,
    names TEXT,
    labels TEXT DEFAULT '{}' NOT NULL,
    subject TEXT,
    CONSTRAINT pk_search_text PRIMARY KEY (doc),
    CONSTRAINT fk_search_text_doc FOREIGN KEY(doc) REFERENCES memories (doc),
    CONSTRAINT fk_search_text_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_search_text_scope_id_revision_doc ON search_text (scope_id, revision, doc);

CREATE INDEX ix_search_text_subject ON search_text (scope_id, subject) WHERE subject IS NOT NULL;

CREATE TABLE steps (
    id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    step_index INTEGER NOT NULL,
    step_kind TEXT NOT NULL,
    name TEXT,
    parent_step_id TEXT,
    metadata TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    status TEXT NOT NULL,
    schema_version INTEGER NOT NULL,
    CONSTRAINT pk_steps PRIMARY KEY (id),
    CONSTRAINT uq_steps_run_id_step_index UNIQUE (run_id, step_index),
    CONSTRAINT fk_steps_run_id FOREIGN KEY(run_id) REFERENCES runs (id)
);

CREATE TABLE store_items (
    scope_id INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    "key" TEXT NOT NULL,
    doc INTEGER NOT NULL,
    ttl BIGINT,
    CONSTRAINT pk_store_items PRIMARY KEY (scope_id, namespace, "key"),
    CONSTRAINT fk_store_items_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id),
    CONSTRAINT fk_store_items_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE INDEX ix_store_items_doc ON store_items (doc);

CREATE TABLE synthesis_quotes (
    run_id TEXT NOT NULL,
    doc INTEGER NOT NULL,
    scope_id INTEGER NOT NULL,
    CONSTRAINT pk_synthesis_quotes PRIMARY KEY (run_id, doc),
    CONSTRAINT fk_synthesis_quotes_run_id FOREIGN KEY(run_id) REFERENCES synthesis_runs (id),
    CONSTRAINT fk_synthesis_quotes_doc FOREIGN KEY(doc) REFERENCES memories (doc),
    CONSTRAINT fk_synthesis_quotes_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_synthesis_quotes_doc ON synthesis_quotes (doc);

CREATE TABLE thread_states (
    thread_id INTEGER NOT NULL,
    id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    parent_id TEXT,
    position BIGINT NOT NULL,
    marks TEXT NOT NULL,
    metadata BLOB NOT NULL,
    state BLOB NOT NULL,
    code BLOB NOT NULL,
    CONSTRAINT pk_thread_states PRIMARY KEY (thread_id, id, namespace),
    CONSTRAINT fk_thread_states_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id)
)
 WITHOUT ROWID;

CREATE TABLE thread_writes (
    thread_id INTEGER NOT NULL,
    checkpoint_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    task_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    task_path TEXT NOT NULL,
    channel TEXT NOT NULL,
    value BLOB NOT NULL,
    code BLOB NOT NULL,
    CONSTRAINT pk_thread_writes PRIMARY KEY (thread_id, checkpoint_id, namespace, task_id, position),
    CONSTRAINT fk_thread_writes_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id)
)
 WITHOUT ROWID;

CREATE TABLE tree_holds (
    thread_id INTEGER NOT NULL,
    part_id INTEGER NOT NULL,
    CONSTRAINT pk_tree_holds PRIMARY KEY (thread_id, part_id),
    CONSTRAINT fk_tree_holds_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id)
)
 WITHOUT ROWID;

CREATE INDEX ix_tree_holds_part_id ON tree_holds (part_id);

CREATE TABLE vectors (
    doc INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    vector BLOB NOT NULL,
    CONSTRAINT pk_vectors PRIMARY KEY (doc, fingerprint),
    CONSTRAINT fk_vectors_doc FOREIGN KEY(doc) REFERENCES memories (doc),
    CONSTRAINT fk_vectors_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_vectors_scope_id_fingerprint ON vectors (scope_id, fingerprint);

CREATE TABLE relation_mentions (
    relation_id INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    confidence INTEGER NOT NULL,
    CONSTRAINT pk_relation_mentions PRIMARY KEY (relation_id, doc),
    CONSTRAINT fk_relation_mentions_relation_id FOREIGN KEY(relation_id) REFERENCES relations (id),
    CONSTRAINT fk_relation_mentions_doc FOREIGN KEY(doc) REFERENCES memories (doc)
);

CREATE INDEX ix_relation_mentions_doc ON relation_mentions (doc);

CREATE TABLE step_entries (
    step_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    scope_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at BIGINT NOT NULL,
    payload_state TEXT NOT NULL,
    part_key TEXT,
    salt BLOB,
    commitment TEXT NOT NULL,
    redactions TEXT NOT NULL,
    summary TEXT NOT NULL,
    base_id TEXT,
    copied TEXT,
    CONSTRAINT pk_step_entries PRIMARY KEY (step_id, position),
    CONSTRAINT fk_step_entries_step_id FOREIGN KEY(step_id) REFERENCES steps (id),
    CONSTRAINT uq_step_entries_id UNIQUE (id),
    CONSTRAINT fk_step_entries_scope_id FOREIGN KEY(scope_id) REFERENCES scopes (id)
);

CREATE INDEX ix_step_entries_base_id ON step_entries (base_id) WHERE base_id IS NOT NULL;

CREATE INDEX ix_step_entries_scope_id_part_key ON step_entries (scope_id, part_key);
