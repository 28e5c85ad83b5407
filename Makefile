# `make demo` and `make test` do all set-up by themselves; a second call skips it.
PYTHON ?= python3
READY := .venv/.ready

.PHONY: demo test test-extras coverage lint docs setup clean

demo: $(READY)
	.venv/bin/mimex demo --out demo

test: $(READY)
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist worksteal -m "not gpu"

test-extras:
	PYTHON=$(PYTHON) bash scripts/test_extras.sh

coverage: $(READY)
	OMP_NUM_THREADS=1 .venv/bin/python -m pytest -n auto --dist worksteal -m "not gpu" --cov --cov-report=term

lint: $(READY)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: $(READY)
	.venv/bin/python -m sphinx -W --keep-going -b html docs docs/_build/html

setup: $(READY)

$(READY): pyproject.toml constraints.txt scripts/setup.sh scripts/torch.sh
	PYTHON=$(PYTHON) bash scripts/setup.sh
	@touch $@

clean:
	rm -rf .venv .venv-extras demo docs/_build
