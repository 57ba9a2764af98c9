# One command for everything. Each target that needs it first makes .venv with the pinned requirements.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
# Whole modules at a time, in the order in which tests/conftest.py puts them
TWO    := -n 2 --dist loadfile --no-loadscope-reorder
STAMP  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
FRAMEWORKS := $(VENV)/.frameworks
# A server like Azure's, for tests: they skip where it is missing, as where there is no npm.
AZURITE := azurite@3.37.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-frameworks lint docs bench soak clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## Train two models from two real Delta tables (sets up everything it needs)
	$(PY) -m examples.demo

test: $(STAMP)  ## Run all tests, two at a time; options: make test ARGS="-k resume -x", or "-n 0 --pdb"
	$(PY) -m pytest $(TWO) $(ARGS)

test-frameworks: $(FRAMEWORKS)  ## Run the tests under Lightning, Accelerate, transformers, Keras' backends, JAX
	$(PY) -m pytest $(TWO) -m frameworks tests/frameworks tests/outputs/test_values.py $(ARGS)

lint: $(STAMP)  ## Check style (ruff) and types (mypy --strict)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict pyloader_delta

docs: $(DOCS)  ## Build the site of the docs into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

bench: $(STAMP)  ## Measure speed against the limit and rivals, memory in a small cgroup, shuffling, resuming; prints JSON
	$(PY) -m benchmarks.picture $(ARGS)
	$(PY) -m benchmarks.memory
	$(PY) -m benchmarks.planning
	$(PY) -m benchmarks.shuffle
	$(PY) -m benchmarks.resume

soak: $(STAMP)  ## Disturb loaders at random for ten minutes and check every epoch; prints JSON
	$(PY) -m benchmarks.soak --minutes 10

clean:  ## Remove .venv, caches and generated tables
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis benchmarks/.data examples/.data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again whenever the requirements change. A virtual environment that stands already is kept if its Python is
# new enough and has pip; else it is made anew.
$(STAMP): requirements.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PY) -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || .ci/make-venv $(PYTHON) $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)/node $(AZURITE) || \
	  echo 'npm could not install $(AZURITE): tests of Azure will be skipped' >&2; fi
	@touch $@

$(DOCS): $(STAMP) requirements-docs.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

$(FRAMEWORKS): $(STAMP) requirements-frameworks.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt -r requirements-frameworks.txt
	@touch $@
