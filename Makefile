# `make setup` makes .venv; `make demo` and `make test` call it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-quick test-long lint check-types protos clean

setup: $(STAMP)

# torch comes first and alone: the CPU build where the configured index offers one.
# Every later request is then satisfied by it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "kvstored needs Python >= 3.11; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "kvstored needs Python's venv module; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[runner,dev]'
	@touch $(STAMP)

demo: setup
	$(BIN)/python -m examples.conversation

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check-types: setup
	$(BIN)/mypy

test: lint check-types
	$(BIN)/python -m pytest --cov

# What a developer runs: everything but the labs of crashes and faults.
test-quick: lint check-types
	$(BIN)/python -m pytest --ignore tests/faults

# The labs at the size that takes minutes each.
test-long: setup
	$(BIN)/python -m pytest -m long --timeout 3600 tests/faults

protos: setup
	$(BIN)/python protos/generate.py

clean:
	rm -rf $(VENV) var
