#!/usr/bin/env bash
# Starts Apache Kafka on a folder of its own, runs the tests that want it, and
# stops it, whatever happens.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/cdr-apache-kafka.XXXXXX")
trap '"$here/apache-kafka.sh" stop "$dir" || true; rm -rf "$dir"' EXIT

echo "==> starting Apache Kafka in $dir" >&2
KAFKA_BOOTSTRAP_SERVERS=$("$here/apache-kafka.sh" start "$dir" 0)
export KAFKA_BOOTSTRAP_SERVERS APACHE_KAFKA_DIR="$dir"
echo "==> testing against Apache Kafka at $KAFKA_BOOTSTRAP_SERVERS" >&2
cargo test --locked --workspace --test 'apache_kafka*' --test path_apache_kafka "$@"
