# Everything here works in a fresh clone that has only Python 3.11+ and make; `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv java demo test test-deep test-servers test-servers-all test-chaos test-chaos-servers test-chaos-all conformance lint check bench lock clean

BIN := .venv/bin
STAMP := .venv/.complete
# The first command that is Python 3.11 or newer; a version manager's shim may exist and still fail, so each is run.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Much of a test is waiting for Spark's driver: two at a time take little more than half the time, also on two cores.
TWO := -n 2 --dist loadfile
# Recipes that start Spark put this before the command, so that it uses the Java that was found.
WITH_JAVA = home=$$(scripts/java.sh); JAVA_HOME="$$home"

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP)  ## the virtual environment .venv, with locked dependencies and the tidegate command

$(STAMP): requirements.lock pyproject.toml
	@[[ -n "$(PYTHON)" ]] || { echo "error: Python 3.11 or newer is needed, and none was found on PATH." >&2; exit 1; }
	"$(PYTHON)" -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

java:  ## find Java 17 or newer; as root with apt-get, install it
	@home=$$(scripts/java.sh); echo "Java: $$home"

demo: venv java  ## a million events through Tidegate and through plain Spark, and what each of them lost
	@$(WITH_JAVA) $(BIN)/tidegate demo

test: venv java  ## all tests that need no server, but the slow ones and those that kill processes
	@$(WITH_JAVA) $(BIN)/python -m pytest $(TWO) -m "not slow and not chaos and not servers"

test-deep: venv java  ## the slow tests: properties, long runs, and that everything in the documents runs
	@$(WITH_JAVA) $(BIN)/python -m pytest $(TWO) -m "slow and not chaos and not servers"

test-servers: venv java  ## Kafka, PostgreSQL, Redis, Delta, a schema registry: real ones, started and stopped here
	@$(WITH_JAVA) $(BIN)/python -m pytest $(TWO) -m "servers and not chaos and not slow"

test-servers-all: venv java  ## the same with what takes minutes: the whole sink conformance suite on Delta, documents, examples
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "servers and not chaos"

test-chaos: venv java  ## kill real drivers at points of their first records and compare the results: a part of the matrix
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "chaos and not slow and not servers"

test-chaos-servers: venv java  ## kill drivers inside every sink, with Kafka as source
	@$(WITH_JAVA) $(BIN)/python -m pytest -m "chaos and servers and not slow"

test-chaos-all: venv java  ## the full kill matrix: every crash point, random kills, zombies
	@$(WITH_JAVA) $(BIN)/python -m pytest -m chaos

conformance: venv java  ## the transcripts, on the model and on Spark
	@$(WITH_JAVA) $(BIN)/tidegate conformance transcripts

lint: venv  ## ruff, formatting, mypy strict, the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

check:  ## exactly what CI runs
	@.ci/run

bench: venv java  ## throughput side by side with Spark's own stateful operators
	@$(WITH_JAVA) $(BIN)/python bench/run.py

lock: venv  ## renew requirements.lock from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes --upgrade \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet -o requirements.lock

clean:  ## remove everything that can be made again
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		spark-warehouse metastore_db derby.log demo-out bench-out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
