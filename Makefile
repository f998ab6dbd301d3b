# Everything that a developer types. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install smoke demo test lab lab_failures machines check golden reference bench release clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z_]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## make .venv and install everything into it

$(STAMP): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[dev]'
	touch $@
	# Kernels for the runs to come: a process in the background compiles them, while cores are idle.
	@$(BIN)/python -m cstool.training.kernels.second_process 2>/dev/null || true
	@$(BIN)/python -c "from cstool.csl.fast.ahead import begin_compiling; begin_compiling()" 2>/dev/null || true

smoke: install  ## every part of cstool once, in under a minute
	PATH="$(abspath $(BIN)):$$PATH" examples/smoke.sh

demo: install  ## train a small GPT on the sources of Python's standard library, on 2 CSX
	PATH="$(abspath $(BIN)):$$PATH" examples/demo.sh

test: install  ## the tests that a change needs, unit tests first
	$(BIN)/python -m pytest tests/unit -m "not lab" -n 2 --dist worksteal --budget
	# Some of these wait for processes; a third worker computes meanwhile.
	$(BIN)/python -m pytest tests/end_to_end tests/reference -m "not lab" -n 3 --dist worksteal --budget

lab: install  ## the rest: Slurm, a browser, kills, storms, wide grids, all examples of the properties
	# Many of these wait for processes; more workers than cores compute meanwhile.
	$(BIN)/python -m pytest -m "lab or hypothesis" -n 5 --dist worksteal --hypothesis-profile lab

lab_failures: install  ## what failed in the last `make lab`, one test at a time
	$(BIN)/python -m pytest -m "lab or hypothesis" --last-failed --last-failed-no-failures none --hypothesis-profile lab

machines: install  ## the tests on other CPUs, as other users, under load; some with the oldest dependencies
	$(BIN)/python -m tests.any_machine
	$(BIN)/python -m tests.versions

check: install  ## lint, format, types, layers, plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.plain_english

golden: install  ## rewrite the golden files of the tests; read the difference before you commit it
	$(BIN)/python -m pytest -q -m golden --update_golden

reference: install  ## write docs/python_reference.md from the code
	$(BIN)/python docs/python_reference.py docs/python_reference.md

bench: install  ## compare with PyTorch and SciPy on this machine (installs the extra `bench`)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '.[bench]'
	$(BIN)/python -m benchmarks.suite
	$(BIN)/python -m benchmarks.sparse
	$(BIN)/python -m benchmarks.sparse_step

release: install  ## build and check dist: the source archive, and the wheel in a new environment
	PYTHON=$(abspath $(BIN))/python .ci/release

clean:  ## remove what make, Python and the tools left behind; data sets and checkpoints stay
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
