# The one list of commands. Each target makes the virtual environment that it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SDK1   := .venv-sdk1
NODE   := .node
HOSTS  := .node-hosts
UI     := .node-ui
SUITE  := .node-conformance
SDKS   := 1.30.0 2.3.0
FUZZ   ?= 3
CORES  := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Most tests wait for other processes: with three per core it is idle for 3 % of the time, with two for 12 %.
AT_ONCE ?= $(shell echo $$(( $(CORES) < 4 ? 3 * $(CORES) : 12 )))
# Python would do this at the first start, unless it is told not to; then every start would pay.
COMPILE := $(BIN)/python -m compileall -q src
# The same holds for tests, which pytest compiles in each of its processes where nothing is kept.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help run prepared test test-root test-cost test-quick coverage mutants docs fuzz check format peers peers-apps peers-hosts ui-test vendor conformance soak soak-sign-in cluster cluster-figures steps bench bench-joined bench-search bench-detectors bench-scripts constraints clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The program alone: what `make run` needs.
$(VENV)/.run: pyproject.toml constraints.txt
	@echo "preparing $(VENV) (once) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e . -c constraints.txt
	@$(COMPILE)
	@touch $@

# The program with its tests and tools.
$(VENV)/.dev: pyproject.toml constraints.txt
	@echo "preparing $(VENV) with test tools (once) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e ".[dev]" -c constraints.txt
	@$(COMPILE)
	@$(PYTEST) --collect-only -qq >/dev/null || true  # compiles them
	@touch $@ $(VENV)/.run

# Version 1 of the Python SDK, which can't live beside version 2.
$(SDK1)/.ready: tests/peers/requirements-sdk1.txt
	@echo "preparing $(SDK1) (once) ..." >&2
	@test -x $(SDK1)/bin/python || $(PYTHON) -m venv $(SDK1)
	@$(SDK1)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Python and Node peers. Node is not installed by us: the tests say so when it is missing.
$(VENV)/.peers: $(VENV)/.dev tests/peers/package.json
	@echo "preparing peers (once) ..." >&2
	@$(PIP) -e ".[dev,peers]" -c constraints.txt
	@if command -v npm >/dev/null; then mkdir -p $(NODE) && cp tests/peers/package.json $(NODE)/ && \
	  (cd $(NODE) && npm install --silent --no-audit --no-fund --no-package-lock) && touch $@; fi

# Programs that host us and have a command for it: 1.4 GB, so they have a folder of their own.
$(HOSTS)/.ready: tests/peers/hosts/package.json
	@echo "preparing $(HOSTS) (once) ..." >&2
	@mkdir -p $(HOSTS) && cp tests/peers/hosts/package.json $(HOSTS)/
	@if command -v npm >/dev/null; then cd $(HOSTS) && \
	  npm install --silent --no-audit --no-fund --no-package-lock && touch .ready; fi

# The official suite and a Node that can run it, in exact versions.
$(SUITE)/.ready: tests/conformance/package.json
	@echo "preparing $(SUITE) (once) ..." >&2
	@mkdir -p $(SUITE) && cp tests/conformance/package.json $(SUITE)/
	@cd $(SUITE) && npm install --silent --no-audit --no-fund --no-package-lock
	@touch $@

# The everything server of the Python SDK, which only its source distributions have.
$(SUITE)/sdk/.ready: tests/conformance/official.py $(VENV)/.dev
	@echo "preparing $(SUITE)/sdk (once) ..." >&2
	@mkdir -p $(SUITE)/sdk
	@for version in $(SDKS); do $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
	  --no-binary mcp --dest $(SUITE)/sdk mcp==$$version && tar xzf $(SUITE)/sdk/mcp-$$version.tar.gz \
	  -C $(SUITE)/sdk mcp-$$version/examples/servers/everything-server || exit 1; done
	@touch $@

prepared: $(VENV)/.peers $(SDK1)/.ready $(SUITE)/.ready $(SUITE)/sdk/.ready $(UI)/.ready

run: $(VENV)/.run ## the main job on the embedded default: a guided session with the demo toolbox
	@$(BIN)/mcp-workbench tour

test: $(VENV)/.dev ## everything that needs nothing but Python, AT_ONCE tests at a time: three per core
	$(PYTEST) --workers $(AT_ONCE)

# They compare costs, and have the processor almost for themselves: beside other tests they would measure those.
test-cost: $(VENV)/.dev ## what measures CPU time and memory, the largest messages above all
	$(PYTEST) -m cost --workers 2

test-root: $(VENV)/.dev ## what only root can do, which other users skip: a few seconds
	$(PYTEST) -m root --workers 2

test-quick: $(VENV)/.dev ## the tests that hardly start a process: about 20 seconds
	$(PYTEST) --workers 3 tests/core tests/transport tests/protocol tests/schema tests/config tests/server

MEASURED := $(BIN)/python -m coverage run -p -m pytest
coverage: $(VENV)/.dev $(SDK1)/.ready ## branch coverage of the suite and of the short form of `cluster`, the started programs included
	$(BIN)/python -m coverage erase
	$(MEASURED) --workers $(AT_ONCE)
	CALLS=500 AWAY=5 $(MEASURED) -m peers --workers 2 tests/cluster
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report -i --include="src/*" --skip-covered --sort=cover

mutants: $(VENV)/.dev ## one-line changes at random that the suite must notice; MUTANTS="--sample 20 --minutes 30"
	$(BIN)/python -m tests.mutants $(MUTANTS)

docs: $(VENV)/.dev ## the parts of docs/ that the program writes: help of commands, error codes
	$(BIN)/python -m tests.house.pages

# The suite tries the same few examples every time; this tries new ones for as long as it is told.
fuzz: $(VENV)/.dev ## readers and parsers under made-up input, for FUZZ=3 minutes
	FUZZ=$(FUZZ) $(BIN)/python -m pytest tests/fuzz --timeout=0 --tb=short

check: $(VENV)/.dev ## format, lint, types, architecture, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(PYTEST) -m lint tests/house

format: $(VENV)/.dev ## let ruff write
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

BESIDE := --ignore tests/peers/test_host_commands.py --ignore tests/peers/test_apps_in_a_browser.py
peers: $(VENV)/.peers $(SDK1)/.ready ## real servers and SDKs from npm and PyPI, and Inspector
	$(BIN)/python -m pytest -m peers tests/peers $(BESIDE) --workers 3

peers-apps: $(VENV)/.peers ## apps in Inspector's web page in Chromium, in all modes, over pipes and HTTP, in both eras
	$(BIN)/python -m pytest -m peers tests/peers/test_apps_in_a_browser.py

peers-hosts: $(VENV)/.peers $(HOSTS)/.ready ## real hosts from npm (1.4 GB), which read back what install wrote
	$(BIN)/python -m pytest -m peers tests/peers/test_host_commands.py

# Accessibility is checked by axe-core, which is not needed for anything else.
$(UI)/.ready: tests/ui/package.json
	@echo "preparing $(UI) (once) ..." >&2
	@mkdir -p $(UI) && cp tests/ui/package.json $(UI)/
	@if command -v npm >/dev/null; then cd $(UI) && \
	  npm install --silent --no-audit --no-fund --no-package-lock && touch .ready; fi

ui-test: $(VENV)/.dev $(UI)/.ready ## the web page in Chromium: every view, hostile servers, axe, screenshots
	UI_SCREENSHOTS="$(SCREENSHOTS)" $(BIN)/python -m pytest -m browser -s tests/ui

vendor: $(VENV)/.dev ## renew the web page's libraries from npm, and THIRD_PARTY.md
	$(BIN)/python -m tests.house.vendored

conformance: $(VENV)/.dev $(SUITE)/.ready $(SUITE)/sdk/.ready $(SDK1)/.ready ## the official suite through the workbench, in all pairs of eras
	@$(COMPILE)
	$(BIN)/python -m tests.conformance.run $(CONFORMANCE)

soak: $(VENV)/.dev ## the guarantees in long runs, each with its figure; SOAK="kills plateau" for some of them
	@$(COMPILE)
	$(BIN)/python -m tests.soak.run $(SOAK)

soak-sign-in: $(VENV)/.peers $(SDK1)/.ready ## one sign-in, tokens of five seconds, six processes: SECONDS=600
	SIGN_IN_SECONDS=$(or $(SECONDS),600) $(BIN)/python -m pytest -m peers -s --timeout=0 tests/peers/test_sign_in_together.py

cluster: $(VENV)/.dev $(SDK1)/.ready ## three replicas behind HAProxy on a real Valkey: CALLS=10000; CALLS=500 AWAY=5 JOBS=2 is the short form; ENGINE=redis-server
	@$(COMPILE)
	ENGINE=$(ENGINE) CALLS=$(or $(CALLS),10000) AWAY=$(or $(AWAY),20) $(BIN)/python -m pytest -m peers $(if $(JOBS),--workers $(JOBS),-s) tests/cluster

cluster-figures: $(VENV)/.dev ## what replicas cost: latency, CPU, memory, commands of the engine
	@$(COMPILE)
	$(BIN)/python -m tests.cluster.figures $(SESSIONS)

# Uses CPU time of one thread; other programs on the machine still slow it down, so leave it alone meanwhile.
steps: $(VENV)/.dev ## the longest step of the event loop, for the largest message at every place; STEPS="hosts servers"
	@$(COMPILE)
	$(BIN)/python -m tests.steps.run $(STEPS)

bench: $(VENV)/.dev ## us beside the limit relay and an SDK gateway, in one run
	@$(COMPILE)
	$(BIN)/python bench/run.py $(BENCH)

bench-joined: $(VENV)/.dev ## a host of a shared workbench beside a host alone: start, memory, latency, calls
	@$(COMPILE)
	$(BIN)/python bench/joined.py $(BENCH)

bench-search: $(VENV)/.dev ## how well tools are found, and for how many tokens; DATA=folders of sets
	@test -n "$(DATA)" || { echo "DATA is missing: folders with tools.jsonl and queries.jsonl, see bench/search_sets.py" >&2; exit 2; }
	$(BIN)/python -m bench.search $(DATA)

bench-detectors: $(VENV)/.dev ## poisoned definitions recognized, and false alarms; DATA=folder of corpora
	@test -n "$(DATA)" || { echo "DATA is missing: a folder of corpora, see bench/detectors.py" >&2; exit 2; }
	$(BIN)/python -m bench.detectors $(DATA)

bench-scripts: $(VENV)/.dev $(VENV)/.peers ## tokens of six tasks with scripts, and their speed; FETCH=a Python with mcp-server-fetch
	@$(COMPILE)
	FETCH="$(FETCH)" $(BIN)/python -m bench.scripts $(BENCH)

constraints: ## renew constraints.txt from a fresh environment
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev,peers]"
	.venv-constraints/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf .venv-constraints

clean: ## remove what the other targets made
	rm -rf $(VENV) $(SDK1) $(NODE) $(HOSTS) $(UI) $(SUITE) .pytest_cache .ruff_cache .hypothesis
