# `make demo` and `make test` do all set-up by themselves; a second call skips it.
PYTHON ?= python3
READY := .venv/.ready

.PHONY: demo test lint setup clean

demo: $(READY)
	.venv/bin/python examples/novelty.py

test: $(READY)
	.venv/bin/python -m pytest -n 2 -m "not gpu"

lint: $(READY)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

setup: $(READY)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh
	@touch $@

clean:
	rm -rf .venv demo
