# Each target sets up what it needs: Python 3.11+ and pip are enough, no environment has to be active.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PACKAGES ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
# Compiled once: every process of the tests would compile the source again.
unexport PYTHONDONTWRITEBYTECODE

# uv installs ten times as fast as pip. It comes with the environment, and keeps its cache there; where
# it is not to be had, or does not reach what pip reaches, pip does the same.
export UV_CACHE_DIR ?= $(CURDIR)/$(VENV)/cache
export UV_COMPILE_BYTECODE = 1
UV := $(shell command -v uv 2>/dev/null || echo $(BIN)/uv)
comma := ,
# $(call install,python,packages): quiet, but for what went wrong.
install = { test -x $(UV) && $(UV) pip install -q --python $(1) $(2); } || $(1) -m pip install -q $(2)
# For many packages: pip says every twentieth package, so that the first minute is not silent.
install_aloud = { test -x $(UV) && $(UV) pip install -q --python $(BIN)/python $(1); } || \
	{ set -o pipefail; $(BIN)/python -m pip install $(1) | awk ' \
	/^Collecting/ {sub(/[^A-Za-z0-9_.-].*/, "", $$2); \
		if (++n % 20 == 0) {print "  … " n " packages, now " $$2; fflush()}} \
	/^Installing collected/ {print "  … putting them in place"; fflush()}'; }
SHELL := bash

.DEFAULT_GOAL := all

.PHONY: all
all: check test ## check and test: what should pass before each commit

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-17s %s\n", $$1, $$2}'

.PHONY: demo
demo: $(VENV)/.demo ## see it work, in a minute; ARGS="--model openai:gpt-5" uses a real model
	@$(BIN)/python -m examples.golden_path $(ARGS)

.PHONY: examples
examples: $(VENV)/.dev ## run every example offline and verify its receipts; ARGS=research_agent runs one
	@$(BIN)/python -m examples.running $(ARGS)

.PHONY: test
test: $(VENV)/.dev ## run the tests, on SQLite and on a PostgreSQL of their own
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not slow" $(ARGS)

.PHONY: test-slow
test-slow: $(VENV)/.dev ## run the tests that kill processes, cut connections, start servers or go through a whole product
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal -m slow $(ARGS)

# What is about the folder or the file of a tally is marked `sqlite`.
ON_POSTGRES := tests/core tests/checkpointers tests/callbacks tests/integrations

.PHONY: test-postgres
test-postgres: $(VENV)/.dev ## run the suites of the core and the adapters on PostgreSQL, those too that `make test` runs on SQLite only
	@TESTS_ON=postgres $(BIN)/python -m pytest -q -n 2 --dist worksteal -k "not sqlite" -m "not slow" $(ON_POSTGRES) $(ARGS)

.PHONY: test-browser
test-browser: $(VENV)/.dev ## look at every page of the dashboard in Chromium, in both colour schemes; pictures in build/screens
	@command -v chromium > /dev/null || test -n "$$CHROMIUM" || \
		{ test "$$(id -u)" = 0 && apt-get install -y -q chromium; } || \
		{ echo "Install Chromium first: apt-get install chromium, or name it: CHROMIUM=/path/to/chrome"; exit 1; }
	@$(BIN)/python -m pytest -q --hypothesis-profile=soak --timeout=600 tests/integrations/test_dashboard_browser.py tests/examples/test_coding_agent_browser.py tests/examples/test_demo_routes_browser.py $(ARGS)

.PHONY: test-oldest
test-oldest: $(VENV)/bin/python ## run the adapters' tests on the oldest runtimes they admit
	@$(PYTHON) -m venv $(VENV)/oldest
	@$(VENV)/oldest/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(call install,$(VENV)/oldest/bin/python,-e '.[all]' --group test -c tests/oldest.txt)
	@$(VENV)/oldest/bin/python -m pytest -q -n 2 -W default -m "not slow" tests/checkpointers tests/callbacks tests/integrations -k "not postgres and not test_everyday and not test_named_models and not test_cli and not test_server and not test_effects and not test_hostile_texts and not test_surface_parity and not test_mcp_isolation and not test_mcp_processes and not test_hooks and not test_soak and not test_client_files and not test_elements and not test_saver_damage and not test_saver_model and not test_importing and not test_documents and not test_receipt_page and not test_dashboard and not test_saver_threads and not test_saver_safety and not test_foreign_memories and not test_opentelemetry and not test_mcp_discovery and not test_dbos and not test_surfaces and not test_agents_benchmark and not test_releases and not test_an_agent_in_a_tool_with_an_observer and not side_by_side_is_compared"

# ADK holds packages back that the other runtimes want newer: it has an environment of its own.
.PHONY: test-adk
test-adk: $(VENV)/adk/.made $(VENV)/.dev ## run the tests of the adapter for Google's Agent Development Kit, and check its types
	@$(VENV)/adk/bin/python -m pytest -q -n 2 -W default tests/integrations/adk
	@$(BIN)/mypy --python-executable $(VENV)/adk/bin/python integrations/tallystick_adk
	@$(BIN)/pyright --pythonpath $(VENV)/adk/bin/python integrations/tallystick_adk examples/harbour_desk

$(VENV)/adk/.made: pyproject.toml | $(VENV)/bin/python
	@echo "Making the environment $(VENV)/adk, with Google's Agent Development Kit (once) …"
	@$(PYTHON) -m venv $(VENV)/adk
	@$(VENV)/adk/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(call install,$(VENV)/adk/bin/python,-e '.[adk$(comma)langchain$(comma)mcp]' --group test)
	@touch $@

.PHONY: test-peers
test-peers: $(VENV)/peers/.made test-packages test-adk ## run other projects' suites and examples on our pieces, MCP's conformance suite, a LangGraph server and LangMem; ARGS="--only langgraph -k name" for the suites
	@$(VENV)/peers/bin/python tests/peers/run.py $(ARGS)
	@$(VENV)/peers/bin/python -m tests.peers.mcp_conformance $(filter --write,$(ARGS))
	@$(VENV)/peers/bin/python -m pytest -q -W default tests/peers/test_langgraph_server.py tests/peers/test_langmem.py

# Each package has an environment of its own in $(VENV)/packages, made anew with the newest releases.
.PHONY: test-packages
test-packages: $(VENV)/bin/python ## run packages that others build on the runtimes; PACKAGES="--only deepagents", PACKAGES=--write writes docs/works-with.md
	@UV=$(UV) $(BIN)/python -m tests.peers.works_with $(PACKAGES)

$(VENV)/peers/.made: pyproject.toml | $(VENV)/bin/python
	@echo "Making the environment $(VENV)/peers, with what other projects' suites need (once) …"
	@$(PYTHON) -m venv $(VENV)/peers
	@$(VENV)/peers/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(call install,$(VENV)/peers/bin/python,-e '.[all]' --group test --group peers)
	@touch $@

.PHONY: check
check: $(VENV)/.dev ## format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j 2 mypy pyright

.PHONY: mypy pyright
mypy pyright: $(VENV)/.dev
	@$(BIN)/$@

.PHONY: format
format: $(VENV)/.dev ## format the code and mend what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: docs
docs: $(VENV)/.docs ## build the site of the documentation: build/site/index.html
	@$(BIN)/sphinx-build -W --keep-going -n -q -j 2 -c docs/site docs build/site $(ARGS)
	@echo "The site is at build/site/index.html"

.PHONY: docs-refresh
docs-refresh: $(VENV)/.dev ## write the generated tables and the pictures of the documentation anew
	@$(BIN)/python -m docs.site.tables
	@$(BIN)/python -m docs.site.pictures
	-@$(BIN)/python -m docs.site.screens

.PHONY: soak
soak: $(VENV)/.dev ## the tests for many minutes, those marked soak too: property tests on 20 times as many examples, drawn anew
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --hypothesis-profile=soak --timeout=3600 $(ARGS)

.PHONY: live
live: $(VENV)/.dev ## one call of each kind with a real model, and what it cost; ARGS=openai, ARGS=anthropic
	@$(BIN)/python -m tests.live $(ARGS)

.PHONY: bench
bench: $(VENV)/.dev ## measure: import time, remember, recall, compile, record
	@$(BIN)/python tests/benchmarks/core.py $(ARGS)

.PHONY: bench-turn
bench-turn: $(VENV)/.dev ## measure one turn of an agent in each runtime, bare, with a tally, and as a user would assemble it
	@$(call install,$(BIN)/python,--group bench)
	@$(BIN)/python -m tests.benchmarks.turn $(ARGS)

.PHONY: bench-checkpoint
bench-checkpoint: $(VENV)/.dev ## measure TallySaver beside the savers of LangGraph
	@$(call install,$(BIN)/python,--group bench)
	@$(BIN)/python tests/benchmarks/checkpoints.py $(ARGS)

.PHONY: bench-journeys
bench-journeys: $(VENV)/.dev ## count the functions and files that one put and one remember pass through
	@$(BIN)/python tests/benchmarks/journeys.py $(ARGS)

.PHONY: bench-house
bench-house: $(VENV)/.dev ## count what makes source hard to read: lines, vocabulary, names, complex functions, circles
	@$(BIN)/python tests/benchmarks/house.py $(ARGS)

.PHONY: bench-recall
bench-recall: $(VENV)/.dev ## measure recall and remember at 1,000 to 100,000 memories beside FTS5 and Chroma
	@$(BIN)/python -m tests.benchmarks.recall $(ARGS)

.PHONY: bench-vectors
bench-vectors: $(VENV)/.dev ## measure the exact scan of vectors beside Chroma, by the size of the scope
	@$(BIN)/python tests/benchmarks/vectors.py $(ARGS)

.PHONY: bench-export
bench-export: $(VENV)/.dev ## measure how long 1,000 recorded steps take to leave as OpenTelemetry spans
	@$(BIN)/python -m tests.benchmarks.export $(ARGS)

.PHONY: bench-prefix
bench-prefix: $(VENV)/.dev ## measure how much of an agent's request begins the next, beside LangChain's stock middleware
	@$(BIN)/python -m tests.benchmarks.prefix $(ARGS)

.PHONY: gate-synthesis
gate-synthesis: $(VENV)/.dev ## hold the bars of synthesis: sources, attacks, claims, corrections, kills, cost; ARGS="--only claims"
	@$(BIN)/python -m tests.benchmarks.gate_synthesis $(ARGS)

.PHONY: bench-agents
bench-agents: $(VENV)/agents/.made ## measure what an agent solves over sessions, with us and with other memories; ARGS="--model openai:gpt-5"
	@$(VENV)/agents/bin/python -m tests.benchmarks.agents $(ARGS)

$(VENV)/agents/.made: pyproject.toml | $(VENV)/bin/python
	@echo "Making the environment $(VENV)/agents, with other memories (once) …"
	@$(PYTHON) -m venv $(VENV)/agents
	@$(VENV)/agents/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(call install,$(VENV)/agents/bin/python,-e '.[langgraph$(comma)langchain$(comma)llama-index$(comma)synthesis]' --group agents)
	@touch $@

.PHONY: bench-compile
bench-compile: $(VENV)/.dev ## measure a compile at 100 to 10,000 candidates beside what LangChain and LlamaIndex do
	@$(BIN)/python -m tests.benchmarks.compile $(ARGS)

.PHONY: eval-pipeline
eval-pipeline: $(VENV)/.dev ## measure what becomes of the proposals of a scripted model; exits 1 below a bar
	@$(BIN)/python -m tests.benchmarks.eval_pipeline

.PHONY: eval-learning
eval-learning: $(VENV)/.dev ## measure which changes of everyday dialogues are applied, by a right and by an erring model; DATA=everyday.json, ARGS=--misses
	@test -n "$(DATA)" || { echo "Name the data: make eval-learning DATA=everyday.json"; exit 1; }
	@$(BIN)/python -m tests.benchmarks.eval_learning "$(DATA)" $(ARGS)

.PHONY: bench-learning
bench-learning: $(VENV)/agents/.made ## measure what learning sends to a model per 1,000 turns, beside mem0; DATA=everyday.json
	@test -n "$(DATA)" || { echo "Name the data: make bench-learning DATA=everyday.json"; exit 1; }
	@$(VENV)/agents/bin/python -m tests.benchmarks.agents.learning_cost "$(DATA)" $(ARGS)

.PHONY: bench-pipeline
bench-pipeline: $(VENV)/.dev ## measure what learning costs remember, under outages too; exits 1 below a bar
	@$(BIN)/python -m tests.benchmarks.pipeline

.PHONY: eval-recall
eval-recall: $(VENV)/.dev ## measure what recall finds; DATA=one.json,another.json in the format of LoCoMo or LongMemEval, else small sets of our own; ARGS="--plots FOLDER" draws it
	@case "$(ARGS)" in *--plots*) $(call install,$(BIN)/python,--group bench);; esac
	@$(BIN)/python -m tests.benchmarks.eval_recall $(DATA) $(ARGS)

.PHONY: eval-everyday
eval-everyday: $(VENV)/.dev ## measure what memory puts into the prompts of ordinary talk; DATA=file.json takes other dialogues
	@$(BIN)/python -m tests.benchmarks.everyday $(DATA) $(ARGS)

.PHONY: eval-poisoning
eval-poisoning: $(VENV)/.dev ## measure what is noticed of poisoned memories, and what of good ones; DATA=set.jsonl in a form of the memory guards
	@$(BIN)/python -m tests.benchmarks.poisoning $(DATA) $(ARGS)

.PHONY: eval-agreement
eval-agreement: $(VENV)/.dev ## measure how far two passes of labels agree on the sets of our own; exits 1 below 0.8
	@$(BIN)/python -m tests.benchmarks.agreement

.PHONY: gates
gates: $(VENV)/.dev ## run every gate, write its evidence, and end the ledger in ship or hold; ARGS="--only everyday", ARGS=--quick
	@$(BIN)/python -m tests.gates $(ARGS)

.PHONY: eval-discovery
eval-discovery: $(VENV)/.dev ## measure whether the right tool of the MCP server is found; ARGS="--model openai:gpt-5" asks a model too
	@$(BIN)/python -m tests.benchmarks.discovery $(ARGS)

.PHONY: eval-held
eval-held: $(VENV)/.dev ## measure a model on the held set of tool tasks and workflows; ARGS="--model openai:gpt-5"; exits 1 below a bar, or without a model
	@$(BIN)/python -m tests.benchmarks.held $(ARGS)

.PHONY: fit-confidence
fit-confidence: $(VENV)/.dev ## fit the confidence of recall again; DATA=learned.json,checked.json: from the first is learned
	@test -n "$(DATA)" || { echo "Name the data: make fit-confidence DATA=friendsqa.json,another.json"; exit 1; }
	@$(BIN)/python -m tests.benchmarks.fit_confidence "$(DATA)" $(ARGS)

.PHONY: eval-floor
eval-floor: $(VENV)/.dev ## measure what the floor of relevance keeps of notes that answer, and of others; DATA=friendsqa.json
	@test -n "$(DATA)" || { echo "Name the data: make eval-floor DATA=friendsqa.json"; exit 1; }
	@$(BIN)/python -m tests.benchmarks.relevance_floor "$(DATA)" $(ARGS)

.PHONY: eval-context
eval-context: $(VENV)/.dev ## measure what survives a budget and what a cache can reuse; DATA=file.json in the LoCoMo format
	@test -n "$(DATA)" || { echo "Name the data: make eval-context DATA=conversations.json"; exit 1; }
	@$(BIN)/python -m tests.benchmarks.eval_context $(DATA) $(ARGS)

.PHONY: eval
eval: $(VENV)/.dev ## the scoreboard of memory: thirteen seeded suites, twice, as one table
	@$(BIN)/python -m tests.benchmarks.eval_memory $(ARGS)

.PHONY: bench-memory
bench-memory: $(VENV)/.dev ## measure changing memories at 1,000 to 100,000 beside a bare SQLite update
	@$(BIN)/python -m tests.benchmarks.memory $(ARGS)

.PHONY: bench-selfheal
bench-selfheal: $(VENV)/.dev ## play 60 listed incidents with the steward's loop and with alerts only; exits 1 below a bar
	@$(BIN)/python -m tests.benchmarks.selfheal $(ARGS)

.PHONY: bench-steward
bench-steward: $(VENV)/.dev ## measure what counting costs a remember and a recall, with and without in one run; exits 1 above 5 %
	@$(BIN)/python -m tests.benchmarks.steward_cost $(ARGS)

.PHONY: bench-limits
bench-limits: $(VENV)/.dev ## measure how recall, remember, compile and a turn of each runtime grow with 1 kB to 1 MB of text; disk by kind
	@$(BIN)/python -m tests.benchmarks.limits $(ARGS)

.PHONY: bench-surfaces
bench-surfaces: $(VENV)/.dev ## measure what HTTP, MCP and hooks add to a call in Python, and the memory of a server
	@$(BIN)/python -m tests.benchmarks.surfaces $(ARGS)

.PHONY: bench-dashboard
bench-dashboard: $(VENV)/.dev ## measure the first byte of each page at 100,000 memories and 10,000 steps; exits 1 above 100 ms
	@$(BIN)/python -m tests.benchmarks.dashboard $(ARGS)

.PHONY: bench-scale
bench-scale: $(VENV)/.dev ## measure writers of several processes on PostgreSQL, with 0 and 1 ms a way; exits 1 below a bar
	@$(BIN)/python -m tests.benchmarks.scale $(ARGS)

.PHONY: bench-secrets
bench-secrets: $(VENV)/.dev ## count the formats of secrets that are caught, and what is taken for one and is none; ARGS="--turns FILE" counts turns that a memory changes
	@$(BIN)/python -m tests.benchmarks.redaction $(ARGS)

.PHONY: bench-extraction
bench-extraction: $(VENV)/.dev ## measure reading pages and PDFs into text beside trafilatura and pypdfium2 alone; exits 1 above twice their time
	@$(BIN)/python -m tests.benchmarks.extraction $(ARGS)

.PHONY: gate-ingest
gate-ingest: $(VENV)/.dev ## measure what an import promises, each beside its bar; exits 1 where one fails
	@$(BIN)/python -m tests.benchmarks.ingest_gate $(ARGS)

.PHONY: release
release: $(VENV)/release/.made ## build, check and sign a release in dist/: wheel, sdist, thin distributions, SBOM, notes; KEY=FILE signs, ARGS=--extras installs each extra
	@UV=$(UV) $(VENV)/release/bin/python -m tests.release $(if $(KEY),--key $(KEY)) $(ARGS)

.PHONY: newcomer
newcomer: $(VENV)/release/.made ## time the way from README to the first memory that a second conversation recalls, per runtime, from the wheel
	@rm -rf build/newcomer && $(VENV)/release/bin/python -m build --no-isolation --wheel -o build/newcomer . > /dev/null
	@UV=$(UV) $(VENV)/release/bin/python tests/release/newcomer.py build/newcomer/*.whl $(ARGS)

$(VENV)/release/.made: pyproject.toml | $(VENV)/bin/python
	@$(PYTHON) -m venv $(VENV)/release
	@$(VENV)/release/bin/python -m pip install -q --upgrade 'pip>=25.1'
	@$(call install,$(VENV)/release/bin/python,--group release)
	@touch $@

.PHONY: clean
clean: ## remove the environment and what tools left behind
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tallystick needs Python 3.11 or newer. Name one: make PYTHON=python3.12 …"; exit 1; }
	@echo "Making the environment $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install -q --upgrade 'pip>=25.1' || { rm -rf $(VENV); exit 1; }
	@command -v uv > /dev/null || $(BIN)/python -m pip install -q uv || echo "uv is not to be had: pip takes a minute or two longer."

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Tallystick, LangGraph, LangChain, PydanticAI, LlamaIndex and pytest into $(VENV)"
	@echo "(once, a minute or two; nothing is installed anywhere else) …"
	@$(call install_aloud,-e '.[all]' --group demo)
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.dev
	@echo "Installing the generator of the site …"
	@$(call install,$(BIN)/python,--group docs)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Tallystick, its runtimes and the tools of development into $(VENV) (once) …"
	@$(call install_aloud,-e '.[all]' --group dev)
	@touch $@ $(VENV)/.demo

.PHONY: bench-recorder
bench-recorder: $(VENV)/.dev $(VENV)/adk/.made ## measure recording an agent beside LangChain's tracer, OpenInference and the sessions of SDKs, a chat that grows, a long run
	@$(call install,$(BIN)/python,--group bench)
	@$(BIN)/python -m tests.benchmarks.recorder $(ARGS)
	@$(VENV)/adk/bin/python -W ignore -m tests.benchmarks.recorder_sdk
