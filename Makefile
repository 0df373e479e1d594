# Needs Python 3.11+ and make; everything else goes into .venv by hash (.ci/set_up.py).
# Another Python: make PYTHON=python3.12 test. Options for pytest: make test PYTEST='tests/schemas -x'.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ifeq ($(strip $(PYTHON)),)
override PYTHON := python3
endif
BIN := .venv/bin
PYTEST ?=
PACKAGES := schemas runtime ingest pipelines sql

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint tidy arrows types namespace test-all soak mutate bench bench-peers lock lock-bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: ## make or refresh .venv from requirements.lock (every target below does it by itself)
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
		echo "trajlake set-up: $(PYTHON) not found; install Python 3.11 or newer, or name one: make PYTHON=..." >&2; exit 3; }
	@$(PYTHON) .ci/set_up.py

demo: setup ## the main job: a killed agent, settled, shipped, compacted, queried (ARGS='--dir D')
	@$(BIN)/trajlake demo $(ARGS)

test: setup ## the tests that run in six minutes on two cores
	$(BIN)/python -m pytest -q -n 2 --dist worksteal $(PYTEST)

check: lint tidy arrows types ## lint, format, tidy sizes, import arrows, strict types ('make -k check' shows all)

lint: setup
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .

tidy: setup
	$(BIN)/python tests/house/tidy.py

arrows: setup
	$(BIN)/lint-imports --no-logo

types: setup namespace
	$(BIN)/mypy -p trajlake

# Links, not copies: a new file is seen without installing anything again.
namespace:
	@mkdir -p build/namespace/trajlake
	@for p in $(PACKAGES); do ln -sfn ../../../$$p build/namespace/trajlake/$$p; done

test-all: setup ## the longer proofs, which 'make test' leaves out
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m long --timeout 1500 $(PYTEST)

soak: setup ## runs for a set time (SOAK_MINUTES, default set by each soak)
	$(BIN)/python -m pytest -q -m soak --timeout 0 -s $(PYTEST)

mutate: setup ## take one sync, order or check out of the journal at a time; a test must fail (ONLY='name' for one)
	$(BIN)/python -m tests.crash.mutations $(if $(ONLY),"$(ONLY)")

bench-peers: ## install what the journal is compared with, into build/bench-venv
	@$(PYTHON) -m venv build/bench-venv
	@build/bench-venv/bin/python -m pip install -q --require-hashes -r tests/benchmarks/peers.lock

bench: setup ## the bars, both sides measured; one group: make bench ONLY=journal
	$(if $(filter-out journal,$(ONLY)),,@$(MAKE) -s bench-peers || echo "bench: rows of absent peers are skipped" >&2)
	$(BIN)/python tests/benchmarks/run.py $(ONLY)

lock: setup ## write requirements.lock from pyproject.toml (needs uv)
	@{ sed -n '/^#/p' requirements.lock; uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-package trajlake --quiet -o /dev/stdout; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

lock-bench: ## write tests/benchmarks/peers.lock (needs uv)
	@{ sed -n '/^# Written/p' tests/benchmarks/peers.lock; uv pip compile tests/benchmarks/peers.in --universal \
		--python-version 3.11 --generate-hashes --no-header --no-annotate --quiet -o /dev/stdout; } > tests/benchmarks/peers.lock.new
	@mv tests/benchmarks/peers.lock.new tests/benchmarks/peers.lock

clean: ## remove what the targets made, .venv too
	rm -rf .venv build dist *.egg-info bench-results trajlake-demo .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
