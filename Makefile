# The front door. `make demo` and `make test` set up everything they need first; `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
# the one that leaves an engine busy with 200 removals comes last
BENCHES := $(filter-out %/bench_density.py,$(wildcard tests/bench/bench_*.py))
SETUP := $(PYTHON) scripts/setup.py

.DEFAULT_GOAL := help
.PHONY: help demo test check bench setup setup-check lock clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*##  *\(.*\)/make \1@\2/p' Makefile | awk -F@ '{printf "%-12s %s\n", $$1, $$2}'

demo:  ## run one queued item the whole way, on a small repository with a real bug
	@$(SETUP) $(BIN)/agent-harness demo

test:  ## all tests
	@$(SETUP) scripts/test.sh

check:  ## format, lint, types, import contracts, house numbers, then all tests
	@$(SETUP) --check scripts/check.sh

bench:  ## per-command and per-step overhead, beside mini-swe-agent's own Docker environment
	@$(SETUP) sh -c 'missed=0; for bench in $(BENCHES) tests/bench/bench_density.py; do \
		echo "--- $$bench"; PYTHONPATH=tests $(BIN)/python $$bench || missed=1; done; exit $$missed'

setup:  ## virtual environment, Docker engine, sandbox image; does only what is missing
	@$(SETUP)

setup-check:  ## set-up, and the tools of `make check`
	@$(SETUP) --check

lock:  ## write the two requirements files anew from pyproject.toml
	$(PYTHON) scripts/lock.py

clean:  ## remove what was made in this folder (the engine and its images stay)
	rm -rf .venv .cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
