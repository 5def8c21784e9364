# `make setup` makes .venv; `make demo` and `make test` call it first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_REQUIREMENTS := $(wildcard engine_adapters/vllm/requirements*.txt)

# Environments of the plug-ins for other engines: .venv-lmcache, .venv-sglang.
PLUGINS := lmcache sglang

.PHONY: setup setup-all demo test test-labs test-long test-vllm $(PLUGINS:%=test-%) lint check-types gpu-bundle protos docs clean

# A module is compiled once, when the first process imports it: pip would compile everything that
# it installs, which takes half of a setup, and without files of bytecode each of the many processes
# that tests start would compile all that it imports. One process imports first, alone:
# tests/found.py, and for vLLM the last line of its setup.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := -m pip install --quiet --no-compile

setup: $(STAMP)

# Both environments that CI needs; with -j2 beside each other.
setup-all: $(STAMP) $(VLLM_STAMP)

# torch comes first and alone: the CPU build where the configured index offers one.
# Every later request is then satisfied by it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "kvstored needs Python >= 3.11; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "kvstored needs Python's venv module; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python $(INSTALL) torch==2.13.0
	$(BIN)/python $(INSTALL) --editable '.[daemon,runner,server,vllm,dev]'
	@touch $(STAMP)

demo: setup
	$(BIN)/python -m examples.conversation

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check-types: setup
	$(BIN)/mypy

# Style, types, import contracts, all behaviour, and each lab that has a smallest size. With
# JSON_FOLDER=DIR this and the labs leave there what each stage and its tests took.
test: setup
	$(BIN)/python -m tests.stages test $(if $(JSON_FOLDER),--json $(JSON_FOLDER)/test_stages.json)

# The labs of faults and of benchmarks, at the size of every submission.
test-labs: setup
	$(BIN)/python -m tests.stages labs $(if $(JSON_FOLDER),--json $(JSON_FOLDER)/labs_stages.json)

# The labs at the size of a release, those of real vLLM engines as well.
test-long: setup $(VLLM_STAMP)
	$(BIN)/python -m tests.stages long $(if $(JSON_FOLDER),--json $(JSON_FOLDER)/long_stages.json)

# Real vLLM engines, in an environment of their own (2 GB): the tests that need vLLM, in two
# workers, each of which has engines that compute with one thread.
test-vllm: $(VLLM_STAMP)
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -m 'vllm and not quick and not long' \
		--numprocesses 2 --dist loadfile --no-loadscope-reorder tests/engine_adapters/vllm

$(VLLM_STAMP): pyproject.toml $(VLLM_REQUIREMENTS)
	@$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python $(INSTALL) --requirement engine_adapters/vllm/requirements.txt
	$(VLLM_VENV)/bin/python $(INSTALL) --no-deps --requirement engine_adapters/vllm/requirements-nodeps.txt
	$(VLLM_VENV)/bin/python $(INSTALL) --no-deps --editable .
	$(VLLM_VENV)/bin/python -m engine_adapters.vllm.testing.imports
	@touch $(VLLM_STAMP)

# What `python -m benchmarks gpu` needs beside PyTorch, in one folder for a machine with a GPU and
# without a network, whose Python GPU_PYTHON names.
GPU_PYTHON ?= 3.12
gpu-bundle: setup
	$(BIN)/python -m benchmarks.gpu.bundle.build --python $(GPU_PYTHON)

# Real LMCache, and what of real SGLang runs without a GPU, each in an environment of its own (1.5 GB).
$(PLUGINS:%=test-%): test-%: .venv-%/.installed
	OMP_NUM_THREADS=1 .venv-$*/bin/python -m pytest -m $* tests/engine_adapters/$*

$(PLUGINS:%=.venv-%/.installed): .venv-%/.installed: pyproject.toml engine_adapters/%/requirements.txt engine_adapters/%/requirements-nodeps.txt
	@$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python $(INSTALL) --requirement engine_adapters/$*/requirements.txt
	.venv-$*/bin/python $(INSTALL) --no-deps --requirement engine_adapters/$*/requirements-nodeps.txt
	.venv-$*/bin/python $(INSTALL) --no-deps --editable .
	@touch $@

protos: setup
	$(BIN)/python protos/generate.py

# The documents as a site, in var/site; a link that leads nowhere fails.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(VLLM_VENV) $(PLUGINS:%=.venv-%) var
