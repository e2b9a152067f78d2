# `just` lists the recipes. `just demo` and `just test` set up what is missing.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Recipes find what they built, wherever a user's own settings would put it.
export CARGO_TARGET_DIR := justfile_directory() / "target"

plugins := "target/plugins"
normalizer := plugins / "cdr-normalizer.wasm"
settings := "samples/normalizer-settings.json"
data := ".cache/up"

[private]
default:
    @just --list --unsorted

# The main job, start to end: posts the sample to a system of its own and shows what landed.
demo *ARGS: build
    ./target/debug/cdr demo --normalizer {{normalizer}} --normalizer-settings {{settings}} --samples samples/cdrs.ndjson.in {{ARGS}}

# Broker, ClickHouse, API and worker on this machine, durable in .cache/up; Ctrl-C stops all of it.
up *ARGS: build
    ./target/debug/cdr up --data {{data}} --normalizer {{normalizer}} --normalizer-settings {{settings}} {{ARGS}}

# The binary (target/debug/cdr) and the normalizers (target/plugins).
build: plugin-build
    @echo "==> building cdr (the first build compiles wasmtime, librdkafka and the embedded broker: several minutes)"
    cargo build --locked --workspace

# All tests, on a broker and a ClickHouse that they start themselves.
test *ARGS: build
    @echo "==> the embedded ClickHouse (fetched once, 180 MB)"
    ./target/debug/cdr embedded fetch
    @echo "==> testing"
    cargo test --locked --workspace {{ARGS}}

# The whole path once more, against Apache Kafka 4 (needs Java 17 and Maven).
test-kafka *ARGS: build
    ./target/debug/cdr embedded fetch
    host/kafka/apache-kafka/apache-kafka.sh fetch
    host/kafka/apache-kafka/test.sh {{ARGS}}

# Rounds of crashes and outages against Apache Kafka 4 and ClickHouse, with vendors posting; needs what test-kafka needs.
chaos ROUNDS="20" *ARGS: build
    ./target/debug/cdr embedded fetch
    host/kafka/apache-kafka/apache-kafka.sh fetch
    ./target/debug/cdr-chaos --rounds {{ROUNDS}} {{ARGS}}

# The same on the embedded parts: kill -9 of `cdr up` and of its children.
chaos-up ROUNDS="10" *ARGS: build
    ./target/debug/cdr embedded fetch
    ./target/debug/cdr-chaos --parts embedded --rounds {{ROUNDS}} {{ARGS}}

# Another version every second under full load, and files between them that must not serve; needs what test-kafka needs.
swaps SECONDS="60" *ARGS: build
    ./target/debug/cdr embedded fetch
    host/kafka/apache-kafka/apache-kafka.sh fetch
    ./target/debug/cdr-swaps --seconds {{SECONDS}} {{ARGS}}

# Half as much again as the API can take, by the clock: answers, memory, and every 202 on the topic; needs what test-kafka needs.
load SECONDS="60" *ARGS: build
    host/kafka/apache-kafka/apache-kafka.sh fetch
    ./target/debug/cdr-load --seconds {{SECONDS}} {{ARGS}}

# A running API against its own /openapi.json: schemathesis, from PyPI (needs Python 3.10).
openapi *ARGS: build
    ./target/debug/cdr embedded fetch
    verify/schemathesis/run.sh {{ARGS}}

# Admission against normalizing, native and in the sandbox: cargo-fuzz, so many runs a target (needs a nightly toolchain).
fuzz RUNS="200000": plugin-build
    verify/fuzz/run.sh {{RUNS}}

# The normalizers as WebAssembly components: target/plugins/cdr-normalizer.wasm and freeswitch-json-cdr.wasm
plugin-build: setup
    @echo "==> building the normalizer (wasm32-wasip2)"
    @# By itself and first: it builds the reference without its exports, into the file that the next build replaces.
    cargo build --locked --package cdr-versions --lib --target wasm32-wasip2 --profile plugin
    cargo build --locked --package cdr-normalizer --package freeswitch-json-cdr --package cdr-hostile --lib --target wasm32-wasip2 --profile plugin
    @mkdir -p {{plugins}}
    @cp target/wasm32-wasip2/plugin/cdr_versions.wasm {{plugins}}/versions.wasm
    @cp target/wasm32-wasip2/plugin/cdr_normalizer.wasm {{normalizer}}
    @cp target/wasm32-wasip2/plugin/freeswitch_json_cdr.wasm {{plugins}}/freeswitch-json-cdr.wasm
    @cp target/wasm32-wasip2/plugin/cdr_hostile.wasm {{plugins}}/hostile.wasm
    @ls -l {{normalizer}} {{plugins}}/freeswitch-json-cdr.wasm | awk '{print "    " $NF ": " $5 " bytes"}'

# The normalizers as their author tests them (fixtures, determinism, contract, figures), then their cases and properties, natively and through the built .wasm, and the guests that misbehave.
plugin-test *ARGS: build
    ./target/debug/cdr plugin test plugins/cdr-normalizer --profile plugin {{ARGS}} -- --locked
    ./target/debug/cdr plugin test plugins/freeswitch-json-cdr --profile plugin {{ARGS}} -- --locked
    cargo test --locked --package cdr-plugin-sdk --package telecom-rules --package cdr-normalizer --package freeswitch-json-cdr
    cargo test --locked --package cdr-plugin-host

# The normalizer in Python: built with componentize-py from PyPI, then run in the real host.
plugin-other-language: build
    @echo "==> building the normalizer in Python"
    plugins/examples/python/build.sh {{plugins}}/sms-hub.wasm
    cargo test --locked --workspace --test other_language -- --ignored

# Formatting and lints, as CI has them.
lint:
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets -- -D warnings

# Normalizing in the sandbox against the same code native (release build).
bench *ARGS: plugin-build
    cargo bench --locked --package cdr-bench {{ARGS}}

# Removes what was built, and the data of `just up`.
clean:
    cargo clean
    rm -rf {{data}}

# What a build needs and a fresh machine may lack.
[private]
setup:
    @.ci/setup
