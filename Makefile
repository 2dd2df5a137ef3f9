# Every target makes its own environment in .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-extras bench compare docs clean

demo: .venv/ready
	$(BIN)/isosphere demo

test: .venv/ready-test
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/python -m pytest -n 2

# Tests that need heavier packages than `make test` installs.
test-extras: .venv/ready-test-extras
	$(BIN)/python -m pytest -m extras

# The site as files, in site/: open site/index.html.
docs: .venv/ready-docs
	$(BIN)/python -m mkdocs build --strict

# Trains the commit before the redesign and HEAD, and compares their results in bits.
compare: .venv/ready-test
	$(BIN)/python tools/compare.py

bench: .venv/ready-bench
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/metrics.py
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
		for bench in losses "metrics --size sop" identification probe monitor simclr; do \
			set -- $$bench; name=$$1; shift; $(BIN)/python benchmarks/$$name.py --device cuda "$$@"; \
		done; \
		$(BIN)/python benchmarks/step.py; $(BIN)/python benchmarks/heads.py; \
	fi

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "isosphere needs Python 3.10 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/ready: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[train]'
	@touch $@

.venv/ready-test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@ .venv/ready .venv/ready-docs

.venv/ready-test-extras: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test-extras]'
	@touch $@ .venv/ready .venv/ready-docs .venv/ready-test

.venv/ready-docs: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@ .venv/ready

.venv/ready-bench: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@ .venv/ready

clean:
	rm -rf .venv build dist site
