# Development commands. Every target first creates the virtual environment from requirements.lock.
.PHONY: setup demo dev test check fast-tests static-checks bench bench-siblings survive mutate lock initial-migration docs golden clean
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
export DAGSTER_HOME := $(CURDIR)/.automation/dagster
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Each process would compile the package and the tests again if the environment forbade cached bytecode.
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make demo    one automation run against the simulator, and its outcome"
	@echo "make dev     Dagster's UI and daemon, the HTTP API and the simulator; Ctrl-C stops all"
	@echo "make check   format, lint, types, import contracts, fast tests, definitions load"
	@echo "make test    every test; starts its own PostgreSQL and Redis; DB=postgres runs everything on PostgreSQL"
	@echo "make bench   a whole run compared with the physical limit and with other tools (FULL=1, MORE=1, ONLY=...)"
	@echo "make bench-siblings   the API, pricing, organisation jobs and enrichment, each compared with its own limit"
	@echo "make survive runs under a hundred seeded faults: kills, outages, full disks; SEED=n FAULTS=100"
	@echo "make mutate  mutation testing; SEED=n COUNT=n"
	@echo "make lock    compile requirements.lock from pyproject.toml, and docker/requirements.lock from it"
	@echo "make initial-migration   generate the initial revision from the tables modules"
	@echo "make docs    regenerate docs/configuration.md and docs/endpoints.md"
	@echo "make golden  accept a change of the public surface: OpenAPI, commands, tables, settings, permissions, Dagster"

setup: $(READY) $(DAGSTER_HOME)/dagster.yaml

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed; say which with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing what requirements.lock pins ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e . 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@touch $@

$(DAGSTER_HOME)/dagster.yaml: dagster.yaml | $(READY)
	@mkdir -p $(@D)
	@ln -sf ../../dagster.yaml $@
	@$(BIN)/python -W ignore -m dagster instance migrate > $(@D)/migrate.log 2>&1 || { cat $(@D)/migrate.log >&2; rm -f $@; exit 1; }

demo: setup
	@python demo/run.py

dev: setup
	@python demo/dev.py

check: setup
	@$(MAKE) --no-print-directory --jobs 2 fast-tests static-checks

fast-tests:
	@pytest -q -n 2 -m "not stored and not services and not e2e"

static-checks:
	@ruff format --check --quiet .
	@ruff check --quiet .
	@basedpyright --level error
	@lint-imports --no-logo > .venv/imports.log || { cat .venv/imports.log >&2; exit 1; }
	@python -W ignore -m dagster definitions validate -m automation_pipeline.definitions --log-level warning

test: setup
	@python -m automation_pipeline_tests

bench: setup
	@python benchmarks/run.py $(if $(FULL),--full) $(if $(MORE),--more) $(if $(ONLY),--only $(ONLY))

bench-siblings: setup
	@python benchmarks/read_api.py
	@python benchmarks/pricing_run.py
	@python benchmarks/org_dispatch.py
	@python benchmarks/enrichment_run.py

survive: setup
	@python -W ignore -m automation_pipeline_tests.survival $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(PROFILE),--profile $(PROFILE))

mutate: setup
	@python benchmarks/mutate.py $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(JOBS),--jobs $(JOBS))

lock: $(READY)
	@uv pip compile pyproject.toml --group dev --universal --no-strip-extras --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet -o requirements.lock
	@uv pip compile pyproject.toml docker/requirements.in --extra kubernetes --constraint requirements.lock --universal \
		--no-strip-extras --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o docker/requirements.lock

initial-migration: setup
	@python -m automation_pipeline.migrations.regenerate

docs: setup
	@python -m automation_pipeline.core.settings_page > docs/configuration.md
	@python -m automation_pipeline_tests.golden.endpoints > docs/endpoints.md

golden: setup
	@python -W ignore -m automation_pipeline_tests.golden

clean:
	rm -rf .venv .automation
