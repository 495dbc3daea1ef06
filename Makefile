# The one list of commands, for people and CI alike. Each makes what it needs; `make` shows them.

PYTHON ?= python3
PYTEST_ARGS ?=

BIN := .venv/bin
BENCH := .venv-bench
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test faults bench docs services clean

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
	$(BIN)/pytest -m 'not faults' -n 2 $(PYTEST_ARGS)

faults: .venv/.dev services ## the long tests: processes killed at bad moments
	$(BIN)/pytest -m faults -n 2 --dist worksteal $(PYTEST_ARGS)

bench: .venv/.dev $(BENCH)/.installed services ## speed and memory, side by side with Scrapy
	$(BIN)/python -m benchmarks.run

docs: .venv/.dev ## write the generated pages of docs/ again
	$(BIN)/python docs/reference/cli.py

services: ## the Debian packages that tests use: nginx, and manuals to crawl
	@.ci/services

clean: ## remove all that these commands made
	rm -rf .venv $(BENCH) .bench dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
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

$(BENCH)/.installed: | $(BIN)/python
	$(PYTHON) -m venv $(BENCH)
	@echo '*' > $(BENCH)/.gitignore
	$(BENCH)/bin/python -m pip install --quiet scrapy scrapy-redis uvloop 'celery[redis]' requests lxml w3lib
	@touch $@
