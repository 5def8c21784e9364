# `make setup` makes .venv; `make demo` and `make test` call it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LONG := $(BIN)/python -m pytest -m long --timeout 3600

VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_REQUIREMENTS := $(wildcard engine_adapters/vllm/requirements*.txt)

.PHONY: setup demo test test-quick test-long test-long-kills test-long-soak test-long-others test-vllm lint check-types protos clean

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

# The labs at the size that takes minutes each, in three parts beside each other that take about
# as long: processes that die and start; a soak, which mostly waits for time to pass, and the
# index; and the rest.
test-long: setup
	$(MAKE) --no-print-directory --jobs 3 --keep-going --output-sync=target \
		test-long-kills test-long-soak test-long-others

test-long-kills:
	$(LONG) tests/faults/kill tests/faults/power tests/system

test-long-soak:
	$(LONG) tests/faults/memory tests/faults/index

test-long-others:
	$(LONG) tests/faults/clients tests/faults/flush tests/faults/full tests/faults/media \
		tests/faults/test_scrub.py

# Real vLLM engines, in an environment of their own (1.8 GB).
test-vllm: $(VLLM_STAMP)
	$(VLLM_VENV)/bin/python -m pytest tests/engine_adapters/vllm

$(VLLM_STAMP): pyproject.toml $(VLLM_REQUIREMENTS)
	@$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --requirement engine_adapters/vllm/requirements.txt
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --requirement engine_adapters/vllm/requirements-nodeps.txt
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $(VLLM_STAMP)

protos: setup
	$(BIN)/python protos/generate.py

clean:
	rm -rf $(VENV) $(VLLM_VENV) var
