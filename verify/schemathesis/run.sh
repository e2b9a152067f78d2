#!/usr/bin/env bash
# Holds a running API host against its own description: starts a whole system on
# loopback, in a folder of its own, and lets schemathesis (PyPI) send it requests
# made from /openapi.json, well-formed and not.
#
#   verify/schemathesis/run.sh [options of `schemathesis run`]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cdr=${CDR:-$root/target/debug/cdr}
venv=$root/.cache/schemathesis

say() { printf '==> %s\n' "$*"; }
fail() {
    printf '==> %s\n' "$@" >&2
    exit 1
}

command -v python3 >/dev/null || fail "python3 is missing (3.10 or newer)"
if ! "$venv/bin/schemathesis" --version 2>/dev/null | grep -qF "$(sed 's/.*==//' "$here/requirements.txt")"; then
    say "installing schemathesis"
    rm -rf "$venv"
    if ! python3 -m venv "$venv" 2>/dev/null; then
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
            fail "python3 has no venv: on Debian, apt-get install python3-venv"
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
        python3 -m venv "$venv"
    fi
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
fi

data=$(mktemp -d)
up=
stop() {
    [ -z "$up" ] || { kill -TERM "$up" 2>/dev/null && wait "$up" || true; }
    rm -rf "$data"
}
trap stop EXIT

say "starting a system"
"$cdr" up --data "$data/up" --normalizer "$root/target/plugins/cdr-normalizer.wasm" \
    --normalizer-settings "$root/samples/normalizer-settings.json" >"$data/up.out" 2>"$data/up.err" &
up=$!
url=
for _ in $(seq 600); do
    kill -0 "$up" 2>/dev/null || { cat "$data/up.err" >&2; fail "the system did not start"; }
    if grep -q '^ready' "$data/up.out"; then
        url=$(awk '$1 == "stats" { sub("/stats", "", $2); print $2 }' "$data/up.out")
        break
    fi
    sleep 0.2
done
[ -n "$url" ] || fail "the system did not come up in two minutes"

say "schemathesis against $url/openapi.json"
cd "$data"
SCHEMATHESIS_HOOKS=hooks PYTHONPATH="$here" "$venv/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$url/openapi.json" "$@" ||
    { tail -n 20 "$data/up.err" >&2; fail "the host and its description disagree: see above"; }
