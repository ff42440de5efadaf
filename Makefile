# Two commands for everybody: `make demo` and `make test`. Each sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# An environment for each interpreter; the first one that fails ends it.
on_each_python = set -e; test -n "$(PYTHONS)" || { echo 'say which: make $@ PYTHONS="python3.12 python3.13"'; exit 2; }; \
  for python in $(PYTHONS); do \
    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
    echo "Python $$version"; \
    $(MAKE) --no-print-directory $(1) PYTHON="$$python" VENV=".venvs/$$version"; \
  done

.PHONY: demo test test-pythons smoke smoke-pythons test-large check bench torture torture-ops privacy-audit lock setup clean help

help: ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 15

setup: $(READY) ## make the virtual environment from the lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"pgsr needs Python 3.11 to 3.13, this is {v[0]}.{v[1]}: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pgsr_core.solvers.compile
	@touch $@

demo: $(READY) ## release a made-up population, end to end
	$(BIN)/pgsr demo

test: $(READY) ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not large"

test-pythons: ## run the tests on several interpreters: PYTHONS="python3.12 python3.13"
	@$(call on_each_python,test)

smoke: $(READY) ## release, verify and replay a small population, as a user would
	$(BIN)/python -m pytest -m smoke

smoke-pythons: ## the same on several interpreters: PYTHONS="python3.12 python3.13"
	@$(call on_each_python,smoke)

test-large: $(READY) ## verify 10,000 simulated releases; release a census of 58 million persons (needs PGSR_DATA)
	$(BIN)/python -m pytest -m large

check: $(READY) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## measure the solvers against their peers (minutes; needs a quiet machine)
	$(BIN)/python -m benchmarks

torture: $(READY) ## crash, race, forge and fill disks under the ledger (minutes)
	$(BIN)/python -m benchmarks.torture

torture-ops: $(READY) ## a day in production: kill workers, crash the database, and count (minutes)
	$(BIN)/python -m benchmarks.torture_ops

privacy-audit: $(READY) ## attack the privacy claim, sound and with bugs planted (minutes)
	$(BIN)/python -m benchmarks.privacy_audit

lock: ## resolve the dependencies anew (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade -q -o requirements.lock

clean: ## remove what set-up and demonstrations made
	rm -rf $(VENV) .venvs demo
