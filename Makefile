# The one list of commands, for people and CI alike. Each makes what it needs; `make` shows them.

PYTHON ?= python3
PYTEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_S ?= 60

BIN := .venv/bin
BENCH := .venv-bench
FUZZ := .venv-fuzz
FUZZED := url robots sitemap header html body
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test faults fuzz bench gate docs services clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name does; do \
	  printf '  make %-9s %s\n' "$$name" "$$does"; done

demo: .venv/.installed ## crawl the small shop that comes with shoal, on this machine alone
	@$(BIN)/shoal demo

check: .venv/.dev ## style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check services ## check, and all tests but the long ones; PYTEST_ARGS are passed on
	$(BIN)/pytest -m 'not faults' -n 3 --dist worksteal $(PYTEST_ARGS)

faults: .venv/.dev services ## the long tests: processes killed at bad moments
	$(BIN)/pytest -m faults -n 2 --dist worksteal $(PYTEST_ARGS)

fuzz: .venv/.dev $(FUZZ)/.installed ## bytes from strangers, FUZZ_S seconds for each reader of them, twice
	SHOAL_FUZZ_S=$(FUZZ_S) $(BIN)/pytest -s tests/fuzz $(PYTEST_ARGS)
	@mkdir -p .fuzz
	@for name in $(FUZZED); do (cd .fuzz && PYTHONPATH=$(CURDIR) ../$(FUZZ)/bin/python \
	  -m tests.fuzz.by_coverage $$name -max_total_time=$(FUZZ_S) -verbosity=0 -print_final_stats=1) || exit 1; done

bench: .venv/.dev $(BENCH)/.installed services ## speed, side by side with other crawlers; BENCH_ARGS are passed on
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

gate: .venv/.dev services ## whether a step of a page has become dearer, in seconds
	$(BIN)/python -m benchmarks.micro --gate

docs: .venv/.dev ## write the generated pages of docs/ again
	$(BIN)/python docs/reference/cli.py

services: ## the Debian packages that tests use: nginx, and manuals to crawl
	@.ci/services

clean: ## remove all that these commands made
	rm -rf .venv $(BENCH) $(FUZZ) .fuzz .bench dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs examples -name __pycache__ -prune -exec rm -rf {} +

# --- Environments -------------------------------------------------------------------------------

$(BIN)/python:
	@.ci/python $(PYTHON)
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@ .venv/.installed

$(BENCH)/.installed: pyproject.toml | $(BIN)/python
	$(PYTHON) -m venv $(BENCH)
	@echo '*' > $(BENCH)/.gitignore
	$(BENCH)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BENCH)/bin/python -m pip install --quiet --group bench
	@touch $@

$(FUZZ)/.installed: pyproject.toml
	$(PYTHON) -m venv $(FUZZ)
	@echo '*' > $(FUZZ)/.gitignore
	$(FUZZ)/bin/python -m pip install --quiet --editable . atheris
	@touch $@
