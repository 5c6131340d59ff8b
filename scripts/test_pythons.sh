#!/usr/bin/env bash
# Tests of the core, without torch and Dask, on each Python of PYTHONS that is here; others are named and passed over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=(bundle cli config damaged_archives derived documents faults fleet hypotheses logs metrics_formats
  nsys_sqlite query road signals small_tables summary torch_profiler traces_formats window)

find_python() { # by its version, on PATH or where pyenv keeps it
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if "$candidate" -c 'import venv' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

files=("${tests[@]/#/tests/test_}")
files=("${files[@]/%/.py}")
for version in ${PYTHONS:-3.12 3.13}; do
  if ! python=$(find_python "$version"); then
    echo "no Python $version here: passed over"
    continue
  fi
  venv=.venv-$version
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  "$venv/bin/pip" --disable-pip-version-check -q install -c constraints.txt -e . pytest pytest-timeout pytest-xdist hypothesis
  echo "== $("$venv/bin/python" --version)"
  "$venv/bin/python" -m pytest -n auto --dist loadfile "${files[@]}"
done
