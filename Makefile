# Every target sets up what it needs: Python 3.11 or newer, git and make are enough on a fresh machine.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.is-set-up
# More arguments for one run: make test-fast PYTEST="-k claim -x", make bench BENCH="--quick"
PYTEST ?=
BENCH ?=
DEMO ?=
# How long make soak goes on: make soak SOAK_MINUTES=480
SOAK_MINUTES ?= 60

# Tests and benches start thousands of processes: each would compile every module again without cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup check test lint types layers test-fast test-slow test-pythons test-lowest soak fix docs picture bench demo lock clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## make .venv from the lock file; does nothing when it is up to date

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Holdfast needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "setting up $(VENV); this takes some minutes the first time" >&2
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: lint types layers test-fast ## what every commit must pass, in a minute and a half

test: check test-slow ## everything: check, then both databases under kills; what .ci/run calls

lint: $(STAMP)
	@$(BIN)/ruff format --check --quiet . || { echo "run: make fix" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .

types: $(STAMP)
	@$(BIN)/mypy

layers: $(STAMP)
	@$(BIN)/lint-imports --no-logo

# Three processes for two cores, because tests wait for disks as often as they compute.
test-fast: $(STAMP)
	@$(BIN)/pytest -q -m "not slow" --numprocesses 3 --dist worksteal $(PYTEST)

# One test at a time for each process: some take a minute, and two of them in one queue would be the end.
test-slow: $(STAMP)
	@$(BIN)/python -m tests.web.browsers
	@$(BIN)/pytest -q -m slow --numprocesses 3 --maxschedchunk 1 $(PYTEST)

# Each Python has an environment of its own, .venv-3.12 for instance.
test-pythons: $(STAMP) ## the fast tests under each supported Python that is installed here
	@$(BIN)/python -m tests.pythons

test-lowest: $(STAMP) ## the fast tests and those of the API with the oldest dependencies that pyproject.toml allows
	@$(BIN)/python -m tests.pythons lowest

# The same tests as above, with many more kills, freezes, jumps and restarts.
soak: $(STAMP) ## endurance: the randomised tests again and again, for SOAK_MINUTES (60)
	@$(BIN)/python -m tests.soak $(SOAK_MINUTES)

fix: $(STAMP) ## repair what machines can repair: format, simple lint, generated pages
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/python -m tests.architecture.write
	@$(BIN)/python -m tests.doors.json_page
	@$(BIN)/python -m tests.api.rpc_page

docs: $(STAMP) ## write the generated parts of docs/ anew
	@$(BIN)/python -m tests.architecture.write
	@$(BIN)/python -m tests.doors.json_page
	@$(BIN)/python -m tests.api.rpc_page

picture: $(STAMP) ## take the picture of the dashboard in README.md anew
	@$(BIN)/python -m tests.web.browsers
	@$(BIN)/python -m tests.web.picture

bench: $(STAMP) ## measure beside raw SQLite and raw PostgreSQL
	@$(BIN)/python -m bench $(BENCH)

demo: $(STAMP) ## a campaign over the installed packages, SIGKILL, each item goes on once, and the proof
	@$(BIN)/python -m holdfast demo $(DEMO)

lock: $(STAMP) ## write requirements/dev.txt anew; UPGRADE=--upgrade takes newer versions
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(UPGRADE) \
	  --extra gateway --extra postgres --extra pydantic-ai --extra dev --output-file requirements/dev.txt pyproject.toml

clean: ## remove every .venv and every cache
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
