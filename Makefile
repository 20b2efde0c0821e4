# Each verb does its own set-up in .venv; `make setup` does it alone.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: setup check test campaign sabotage agents docs bench judge-model demo clean

$(BIN)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[all,dev]'
	touch $@

setup: $(BIN)/.ready

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/waza docs --check

test: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal

# The safety tests at full size, with figures in campaign/; TRUST.md quotes them. One part: `make campaign PART=kills`
# (kills faults cuts traces escapes agents specs judges secrets statistics intervals sabotage); an hour's sample: `SIZE=sample`.
SIZE ?= full
campaign: setup
	$(BIN)/python tests/campaign.py $(PART) --size $(SIZE)

# Puts deliberate one-line faults into a copy of the safety code, one at a time: a named test must notice each.
sabotage: setup
	$(BIN)/python tests/sabotage.py --jobs 2

# Every agent program that is installed, end to end against a scripted model on loopback.
agents: setup
	WAZA_CAMPAIGN=full $(BIN)/python -m pytest tests/engines/test_agents.py tests/engines/test_continued.py tests/skills/test_trigger_agents.py --timeout=600

docs: setup
	$(BIN)/waza docs
	$(BIN)/waza schema -o docs/schema

bench: setup
	bench/setup.sh
	cd bench && ../$(BIN)/python bench.py --out results/run.jsonl && ../$(BIN)/python report.py results/run.jsonl

# A real, very small model judges the goldens of the built-in rubrics. Takes minutes; installs into bench/venvs.
judge-model: setup
	$(BIN)/python bench/judge_model/run.py

demo: setup
	$(BIN)/waza run examples/quickstart

clean:
	rm -rf $(VENV) docs/reference docs/schema .mypy_cache .ruff_cache .pytest_cache
