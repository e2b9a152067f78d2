#!/usr/bin/env bash
# A real Apache Kafka broker (KRaft, one node, loopback only) for the tests.
#
#   apache-kafka.sh fetch            fetch the jars (Java 17 and Maven needed)
#   apache-kafka.sh start DIR PORT   start a broker with its data in DIR; PORT 0 picks
#                                    one, and keeps it for later starts on DIR.
#                                    Prints the bootstrap address, and nothing else,
#                                    on standard output.
#   apache-kafka.sh stop DIR         stop the broker of DIR; its data stays
#
# In DIR: pid, server.properties, kafka.log, data/. A broker that was killed is
# started again by the same command.
#
# APACHE_KAFKA_ADVERTISED_PORT is the port that the broker tells its clients, of a
# proxy in front of it for example; without it, its own.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/pom.xml")
jars=${XDG_CACHE_HOME:-$HOME/.cache}/cdr/apache-kafka-$version
# Start-up takes seconds; a loaded machine may need longer.
start_budget=${APACHE_KAFKA_START_SECONDS:-90}

say() { echo "apache-kafka: $*" >&2; }
die() { say "$*"; exit 1; }

need_java() {
  command -v java >/dev/null ||
    die "java was not found. Apache Kafka $version needs Java 17 or later: apt-get install openjdk-17-jre-headless"
  local major
  major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
  if [ -z "$major" ] || [ "$major" -lt 17 ]; then
    die "Apache Kafka $version needs Java 17 or later, found ${major:-an unknown version} ($(command -v java))"
  fi
}

fetch() {
  [ -f "$jars/complete" ] && return 0
  need_java
  command -v mvn >/dev/null ||
    die "mvn was not found; it fetches the jars of Apache Kafka $version: apt-get install maven"
  say "fetching Apache Kafka $version (43 MB) into $jars"
  mkdir -p "$(dirname "$jars")"
  local part log
  part=$(mktemp -d "$jars.part.XXXXXX")
  log=$part/fetch.log
  if ! mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$part" >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    rm -rf "$part"
    die "Maven could not fetch Apache Kafka $version (its last words are above). Behind a mirror, name it in ~/.m2/settings.xml"
  fi
  rm -f "$log"
  # Complete or not there: another fetch may run at the same time.
  touch "$part/complete"
  mv -T "$part" "$jars" 2>/dev/null || rm -rf "$part"
  [ -f "$jars/complete" ] || die "could not put the jars into $jars; remove it and try again"
}

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below the range from which the system takes ports for outgoing connections.
free_port() {
  local port
  for _ in $(seq 200); do
    port=$((20000 + RANDOM % 12000))
    listening "$port" || { echo "$port"; return 0; }
  done
  die "no free port was found between 20000 and 32000"
}

# Whether the broker of DIR runs: a number may have gone to another process, or
# belong to one that is dead but not yet reaped.
alive() {
  [ -f "$1/pid" ] || return 1
  local pid
  pid=$(cat "$1/pid")
  kill -0 "$pid" 2>/dev/null || return 1
  [ ! -d /proc/self ] || grep -qsa "server.properties" "/proc/$pid/cmdline"
}

setting() {
  if [ -f "$1/server.properties" ]; then sed -n "s/^# $2=//p" "$1/server.properties"; fi
}

configure() {
  local dir=$1 port=$2 controller
  if [ "$port" = 0 ]; then port=$(setting "$dir" port); fi
  if [ -z "$port" ]; then port=$(free_port); fi
  controller=$(setting "$dir" controller)
  while [ -z "$controller" ] || [ "$controller" = "$port" ]; do controller=$(free_port); done
  local advertised=${APACHE_KAFKA_ADVERTISED_PORT:-$port}
  cat >"$dir/server.properties" <<PROPERTIES
# port=$port
# controller=$controller
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=BROKER://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=BROKER://127.0.0.1:$advertised
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs=$dir/data
# Topics come from provisioning only.
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Tests need not wait for members that never come, nor for long sessions.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=8388608
PROPERTIES
}

start() {
  local dir=$1 port=$2 heap
  [[ $port =~ ^[0-9]+$ ]] || die "PORT must be a number, found $port"
  [[ ${APACHE_KAFKA_ADVERTISED_PORT:-0} =~ ^[0-9]+$ ]] ||
    die "APACHE_KAFKA_ADVERTISED_PORT must be a number, found $APACHE_KAFKA_ADVERTISED_PORT"
  need_java
  fetch
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  if alive "$dir"; then die "a broker runs on $dir already (pid $(cat "$dir/pid"))"; fi
  configure "$dir" "$port"
  port=$(setting "$dir" port)
  if listening "$port"; then die "port $port is in use by another process"; fi
  heap="-Xms128m -Xmx${APACHE_KAFKA_HEAP:-384m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
  if [ -f "$dir/kafka.log" ]; then mv "$dir/kafka.log" "$dir/kafka.log.1"; fi
  local run=(-cp "$jars/*" -Dlog4j2.configurationFile="$here/log4j2.properties")
  if [ ! -f "$dir/data/meta.properties" ]; then
    # shellcheck disable=SC2086
    java $heap "${run[@]}" kafka.tools.StorageTool format --ignore-formatted \
      -t Y2RyLWthZmthLXRlc3QtMQ -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      { tail -n 15 "$dir/format.log" >&2; die "the storage in $dir/data could not be formatted"; }
  fi
  # A session of its own, so that a Ctrl-C for the tests does not reach it.
  # shellcheck disable=SC2086
  setsid java $heap "${run[@]}" kafka.Kafka "$dir/server.properties" \
    >"$dir/kafka.log" 2>&1 </dev/null &
  local pid=$!
  echo "$pid" >"$dir/pid"
  local waited=0
  until grep -q "Kafka Server started" "$dir/kafka.log" && listening "$port"; do
    if ! kill -0 "$pid" 2>/dev/null; then
      tail -n 15 "$dir/kafka.log" >&2
      die "the broker ended while it started (its last words are above, all of them in $dir/kafka.log)"
    fi
    if [ "$waited" -ge $((start_budget * 10)) ]; then
      kill -9 "$pid" 2>/dev/null || true
      die "the broker did not start within $start_budget s; see $dir/kafka.log"
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  say "Apache Kafka $version runs on 127.0.0.1:$port (pid $pid, data in $dir)"
  echo "127.0.0.1:$port"
}

stop() {
  local dir=$1
  alive "$dir" || { say "no broker runs on $dir"; rm -f "$dir/pid"; return 0; }
  local pid waited=0
  pid=$(cat "$dir/pid")
  kill "$pid"
  while alive "$dir"; do
    if [ "$waited" -ge 300 ]; then
      say "the broker did not stop within 30 s; killing it"
      kill -9 "$pid" 2>/dev/null || true
    fi
    sleep 0.1
    waited=$((waited + 1))
  done
  rm -f "$dir/pid"
  say "stopped the broker of $dir"
}

usage() { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }

case ${1:-} in
  fetch) [ $# -eq 1 ] || usage; fetch ;;
  start) [ $# -eq 3 ] || usage; start "$2" "$3" ;;
  stop) [ $# -eq 2 ] || usage; stop "$2" ;;
  *) usage ;;
esac
