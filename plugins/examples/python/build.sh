#!/usr/bin/env bash
# Builds the component: ./build.sh OUTPUT.wasm
# componentize-py comes from PyPI, into a virtual environment under target/. It
# brings its own CPython for WebAssembly; any Python from 3.9 runs the tool.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
output=${1:?usage: build.sh OUTPUT.wasm}
tools=${CARGO_TARGET_DIR:-$root/target}/componentize-py

[ -x "$tools/bin/python" ] || python3 -m venv "$tools" || {
    echo "python3 can't make a virtual environment: install Python 3.9 or newer with venv (on Debian: python3-venv)" >&2
    exit 1
}
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"

mkdir -p "$(dirname "$output")"
# --stub-wasi: without it the component imports wasi:sockets, which the host
# refuses; see docs/plugin-other-languages.md.
"$tools/bin/componentize-py" --quiet --wit-path "$root/wit/1.0.0" --world plugin \
    componentize --stub-wasi --python-path "$here/src" --output "$output" app
echo "$output: $(wc -c <"$output") bytes"
