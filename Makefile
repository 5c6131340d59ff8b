# Two commands do everything on a machine with Python >= 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q install -c constraints.txt
SAMPLE ?= sample_traces/03_batch_window_mismatch

.PHONY: demo test test-slow test-pythons lint format samples docs readme golden images bench fuzz reliability clean

$(VENV)/core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[torch]'
	touch $@

$(VENV)/dev: $(VENV)/core
	$(PIP) -e '.[torch,dev]'
	touch $@

demo: $(VENV)/core  ## install and diagnose a bundled incident, experiment included
	$(BIN)/rca analyze $(SAMPLE) --out out/demo

test: $(VENV)/dev  ## the test suite
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(VENV)/dev  ## what takes too long for `make test`
	$(BIN)/python -m pytest -m slow -n auto --dist loadfile || [ $$? -eq 5 ]  # 5: there is none

test-pythons:  ## the core without torch and Dask on other Pythons, where they are here
	PYTHONS="$(PYTHONS)" bash scripts/test_pythons.sh

lint: $(VENV)/dev  ## format, style, types, imports, SQL comments, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/schema_docs.py --check
	$(BIN)/python scripts/cause_docs.py --check

format: $(VENV)/dev  ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

samples: $(VENV)/core  ## rebuild sample_traces with the reproducer
	$(BIN)/python scripts/make_samples.py

docs: $(VENV)/dev  ## rebuild generated documents
	$(BIN)/python scripts/schema_docs.py
	$(BIN)/python scripts/cause_docs.py
	$(BIN)/python scripts/licences.py

readme: $(VENV)/core  ## record the sample output in README.md anew
	$(BIN)/python scripts/readme_sample.py

golden: $(VENV)/dev  ## write the golden postmortems and docs/reading.md anew; look at the difference
	$(BIN)/python scripts/golden.py

images: $(VENV)/dev  ## draw the screenshots of the documents anew; needs chromium
	$(BIN)/python scripts/report_images.py

bench: $(VENV)/dev  ## measure how fast recordings are read, and write docs/benchmarks.md; HTA=PYTHON has its loader beside
	$(BIN)/python -m benchmarks --mb 200 --profile-mb 400 1600 --growth 10 40 100 400 1600 --incident-mb 200 --repeat 1 $(if $(HTA),--hta $(HTA)) --write docs/benchmarks.md

fuzz: $(VENV)/dev  ## damage files of every format for two minutes; the counts go to docs/reliability.md
	$(BIN)/python scripts/fuzz.py --budget 120

reliability: $(VENV)/dev  ## kill each command 100 times, an hour each at most; the counts go to docs/reliability.md
	$(BIN)/python scripts/reliability.py --count 100

clean:
	rm -rf $(VENV) out build dist *.egg-info
