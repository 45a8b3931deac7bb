# What people do here. Every target makes the virtual environment first, from requirements.lock alone.
.PHONY: setup demo dev test check bench lock docs clean
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
export DAGSTER_HOME := $(CURDIR)/.automation/dagster
export PATH := $(CURDIR)/$(BIN):$(PATH)

help:
	@echo "make demo    a whole run against a simulated outside world, then its outcome"
	@echo "make dev     Dagster's UI and daemon, the HTTP API and the simulator, one Ctrl-C ends all"
	@echo "make check   format, lint, types, import contracts, fast tests, definitions load"
	@echo "make test    every test, on a PostgreSQL and a Redis that it starts by itself"
	@echo "make bench   ratios of a whole run and of the API to the physical limit"
	@echo "make lock    compile requirements.lock anew from pyproject.toml"
	@echo "make docs    write the generated pages under docs/ anew"

setup: $(READY) $(DAGSTER_HOME)/dagster.yaml

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed; say which with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing what requirements.lock pins ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e . 2> .venv/pip.log || { cat .venv/pip.log >&2; exit 1; }
	@touch $@

$(DAGSTER_HOME)/dagster.yaml: dagster.yaml
	@mkdir -p $(@D)
	@ln -sf ../../dagster.yaml $@

demo: setup
	@python demo/run.py

dev: setup
	@python demo/dev.py

check: setup
	@ruff format --check --quiet .
	@ruff check --quiet .
	@basedpyright --level error
	@lint-imports --no-logo > .venv/imports.log || { cat .venv/imports.log >&2; exit 1; }
	@pytest -q -n 2 -m "not stored and not services and not e2e"
	@python -W ignore -m dagster definitions validate -m automation_pipeline.definitions --log-level warning

test: setup
	@pytest -q -n 2

bench: setup
	@python benchmarks/whole_run.py --fiches 200
	@python benchmarks/read_api.py
	@python benchmarks/pricing_run.py
	@python benchmarks/org_dispatch.py
	@python benchmarks/enrichment_run.py

lock: $(READY)
	@uv pip compile pyproject.toml --group dev --universal --no-strip-extras --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet -o requirements.lock

docs: setup
	@python -m automation_pipeline.core.settings_page > docs/configuration.md
	@python -m automation_pipeline.api.page > docs/endpoints.md

clean:
	rm -rf .venv .automation
