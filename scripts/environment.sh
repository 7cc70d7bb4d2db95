# Sourced by the scripts beside it: finds Python, makes a virtual environment, installs Hermes in it.
#
#   prepare_environment [EXTRA]    afterwards: $root, $venv, and the programs in $venv/bin
#
# HERMES_PYTHON names the interpreter to use (3.11 or newer; another one is refused), HERMES_VENV the environment's
# directory (.venv in the checkout unless set). A second run with nothing changed installs nothing;
# with HERMES_INSTALLED=1 none does, for an environment that was made elsewhere.
# shellcheck shell=bash

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="${HERMES_VENV:-$root/.venv}"
case "$venv" in /*) ;; *) venv="$PWD/$venv" ;; esac

# Nothing that the caller's shell has set may leak into the environment.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

# Whether $1 is a Python that Hermes runs on.
is_recent_python() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Whether $1 can make virtual environments; Debian packs these two modules apart.
can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# End when HERMES_PYTHON names an interpreter that won't do: another one is not what was asked for.
check_named_python() {
    [ -n "${HERMES_PYTHON:-}" ] || return 0
    command -v "$HERMES_PYTHON" >/dev/null ||
        die "HERMES_PYTHON names $HERMES_PYTHON, which can't be run: correct it, or unset it"
    is_recent_python "$HERMES_PYTHON" ||
        die "HERMES_PYTHON names $HERMES_PYTHON, which is $("$HERMES_PYTHON" --version 2>&1 | tail -n 1): Hermes
needs Python 3.11 or newer. Name another one, or unset it to have one looked for."
    can_make_venv "$HERMES_PYTHON" ||
        die "HERMES_PYTHON names $HERMES_PYTHON, which has no venv module (or no ensurepip): install it (Debian,
Ubuntu: the package python3-venv), or name another one"
}

# Print the Python that HERMES_PYTHON names, or else the first that will do; fail when there is none.
find_python() {
    local candidate
    check_named_python
    for candidate in ${HERMES_PYTHON:+"$HERMES_PYTHON"} \
        python3.11 python3.12 python3.13 python3.14 python3 python; do
        if is_recent_python "$candidate" && can_make_venv "$candidate"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    return 1
}

apt_install() {
    local log
    log="$(mktemp)"
    say "installing $* with apt-get ..."
    if ! { DEBIAN_FRONTEND=noninteractive apt-get update -q &&
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"; } \
        >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

# As find_python, but on Debian and Ubuntu root may install what is missing.
find_or_install_python() {
    find_python && return
    if [ -f /etc/debian_version ] && [ "$(id -u)" -eq 0 ]; then
        # The distribution's own Python first; where that is too old, one that stands beside it.
        { apt_install python3 python3-venv && find_python; } && return
        { apt_install python3.11 python3.11-venv && find_python; } && return
    fi
    die "Hermes needs Python 3.11 or newer, with the venv module. Install it, for instance with
    Debian, Ubuntu:  sudo apt-get install python3 python3-venv
    Fedora:          sudo dnf install python3
    macOS:           brew install python@3.12
or name an interpreter: HERMES_PYTHON=/path/to/python3 $0"
}

make_venv() {
    local python clear=()
    check_named_python
    if is_recent_python "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        [ -z "${HERMES_PYTHON:-}" ] ||
            [ "$("$HERMES_PYTHON" --version)" = "$("$venv/bin/python" --version)" ] ||
            die "$venv was made with $("$venv/bin/python" --version), and HERMES_PYTHON names
$("$HERMES_PYTHON" --version): remove $venv, or set HERMES_VENV to another directory"
        return
    fi
    if [ -e "$venv" ]; then
        # What is there is broken (its Python may be gone). Never clear what isn't an environment.
        [ -f "$venv/pyvenv.cfg" ] || [ -z "$(ls -A "$venv")" ] ||
            die "$venv is no virtual environment; move it away or set HERMES_VENV"
        clear=(--clear)
    fi
    python="$(find_or_install_python)"
    say "creating $venv with $("$python" --version) ..."
    "$python" -m venv ${clear[@]+"${clear[@]}"} "$venv"
}

# What an installation depends on: the metadata, what is compiled, the checkout's place, the interpreter.
installation_key() {
    { cat "$root/setup.cfg" "$root/setup.py" "$root/pyproject.toml" \
        "$root/hermes/protocol/_core.c" && printf '%s\n' "$root" "$1" &&
        "$venv/bin/python" --version; } | cksum
}

install_hermes() {
    local extra="$1" stamp="$venv/.hermes-installed" key known
    [ -z "${HERMES_INSTALLED:-}" ] || return 0
    # Every extra holds the package itself.
    for known in "$extra" test; do
        key="$(installation_key "$known")"
        [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ] && return
    done
    rm -f "$stamp"
    say "installing Hermes into $venv ..."
    "$venv/bin/python" -m pip install --quiet --editable "$root${extra:+[$extra]}" ||
        die "pip could not install what Hermes needs (see above); is the package index reachable?"
    installation_key "$extra" >"$stamp"
}

# Whether what the tests use of a Debian package is there.
has_package() {
    case "$1" in
        zookeeper) [ -e /usr/share/java/zookeeper.jar ] && command -v java ;; # coordination, beside the embedded one
        libfaketime) compgen -G '/usr/lib/*/faketime/libfaketime.so.1' ;;     # a clock that is set while a broker runs
        chromium-driver) command -v chromedriver ;;                           # the web console, with chromium
        prometheus) command -v promtool ;;                                    # the examples for Prometheus
        maven) command -v mvn ;;                                              # Kafka 4, and what Spark needs for S3
        *) command -v "$1" ;;
    esac >/dev/null
}

# ensure_packages PACKAGE...: in one go, since apt takes most of its time to begin and to end.
ensure_packages() {
    local package missing=()
    for package in "$@"; do
        has_package "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ -f /etc/debian_version ] && [ "$(id -u)" -eq 0 ]; then
        apt_install "${missing[@]}" && return
    fi
    die "The tests need ${missing[*]}. Install what is missing, for instance with
    Debian, Ubuntu:  sudo apt-get install ${missing[*]}"
}

# Where what is fetched or built for the tests is kept, for all checkouts.
cache="${HERMES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hermes}"

# fetch_jars WHAT POM SUMS DIRECTORY: Maven brings jars, by the settings that this machine has for Maven; once.
fetch_jars() {
    local what="$1" pom="$2" sums="$3" directory="$4" partial
    local maven=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
    (cd "$directory" 2>/dev/null && sha256sum --check --status "$sums") && return
    ensure_packages maven
    say "fetching $what with Maven ..."
    mkdir -p "$(dirname "$directory")"
    partial="$(mktemp -d "$directory.XXXXXX")"
    if ! mvn -B -q --strict-checksums -f "$pom" "$maven:copy-dependencies" \
        -DoutputDirectory="$partial" -DincludeScope=runtime >"$partial/log" 2>&1; then
        tail -n 15 "$partial/log" >&2
        rm -rf "$partial"
        die "Maven could not fetch $what (see above); is Maven Central, or the mirror that
~/.m2/settings.xml names, reachable?"
    fi
    if ! (cd "$partial" && sha256sum --check --quiet "$sums") >&2; then
        rm -rf "$partial"
        die "What Maven fetched isn't what $sums says (see above)."
    fi
    rm -rf "$directory" "$partial/log"
    # Of two that fetched it at once, the first has made it.
    mv -T "$partial" "$directory" 2>/dev/null || rm -rf "$partial"
}

# ensure_jars VARIABLE WHAT FOLDER ARTIFACT: what the pom.xml of a folder of tests/support/java names, where VARIABLE
# says; its version is the artifact's.
ensure_jars() {
    local here="$root/tests/support/java/$3" version
    version="$(sed -n "s/.* $4-\([0-9.]*\)\.jar$/\1/p" "$here/jars.sha256")"
    export "$1=$cache/$4-$version"
    fetch_jars "$2 $version" "$here/pom.xml" "$here/jars.sha256" "${!1}"
}

# Kafka 4 stands beside Hermes' broker in the tests of Kafka's protocol, and its clients are tested on both.
ensure_kafka() {
    local here="$root/tests/support/java" version
    version="$(sed -n 's/.* kafka-clients-\(.*\)\.jar$/\1/p' "$here/kafka.sha256")"
    export HERMES_KAFKA_JARS="$cache/kafka-$version"
    fetch_jars "Kafka $version" "$here/pom.xml" "$here/kafka.sha256" "$HERMES_KAFKA_JARS"
}

# The soak has Spark's connector for Kafka read and write topics.
ensure_spark_connector() {
    local here="$root/tests/support/java/spark" version
    version="$(sed -n 's/.* kafka-clients-\(.*\)\.jar$/\1/p' "$here/spark.sha256")"
    export HERMES_SPARK_CONNECTOR_JARS="$cache/spark-connector-$version"
    fetch_jars "Spark's connector" "$here/pom.xml" "$here/spark.sha256" "$HERMES_SPARK_CONNECTOR_JARS"
}

# Programs of Java that use Kafka, for the soak: Streams counts words, Connect brings a file, Flink writes, Spring moves.
ensure_java_applications() {
    ensure_jars HERMES_STREAMS_JARS "Kafka Streams" streams kafka-streams
    ensure_jars HERMES_CONNECT_JARS "Kafka Connect" connect connect-runtime
    ensure_jars HERMES_FLINK_JARS Flink flink flink-runtime
    ensure_jars HERMES_SPRING_JARS Spring spring spring-kafka
}

# Spark's tests on S3: Spark's file system for it, and a server.
ensure_s3() {
    ensure_jars HERMES_S3A_JARS "Hadoop's S3A" hadoop-aws hadoop-aws
    ensure_versitygw
}

# The first release of this server that checks the condition of a put under a lock.
ensure_versitygw() {
    local version=v1.8.0 package=github.com/versity/versitygw/cmd/versitygw partial
    export HERMES_VERSITYGW="$cache/versitygw-$version/versitygw"
    [ -x "$HERMES_VERSITYGW" ] && return
    command -v go >/dev/null || die "The tests need an S3 server, versitygw $version, which Go builds. Install Go 1.26 or newer
(https://go.dev/dl; what Debian and Ubuntu pack as golang may be older)."
    say "building versitygw $version with Go ..."
    mkdir -p "$cache"
    partial="$(mktemp -d "$cache/versitygw.XXXXXX")"
    # Without optimizing, which takes as long again, and the tests ask little of it.
    if ! GOBIN="$partial" go install -gcflags='all=-N -l' -ldflags='-s -w' "$package@$version" \
        >"$partial/log" 2>&1; then
        tail -n 15 "$partial/log" >&2
        rm -rf "$partial"
        die "Go could not build versitygw $version (see above); is the module proxy that GOPROXY names reachable?"
    fi
    rm -f "$partial/log"
    mv -T "$partial" "${HERMES_VERSITYGW%/*}" 2>/dev/null || rm -rf "$partial"
}

# Looks whether histories of the simulator's clients could be those of a log.
ensure_porcupine() {
    local sources="$root/tests/simulation/porcupine" built
    built="$cache/porcupine-$(cksum_of "$sources")"
    build_once "the checker of histories" "$sources" "$built" go build -trimpath -o porcupine .
    export HERMES_PORCUPINE="$built/porcupine"
}

# A HDFS in one process, for the soak suite.
ensure_hdfs() {
    ensure_jars HERMES_HDFS_JARS "Hadoop's minicluster" hdfs hadoop-client-minicluster
}

# Clients of Kafka's in Go: what a console asks for, and more in the soak.
ensure_go_clients() {
    local sources="$root/tests/support/go"
    export HERMES_GO_CLIENTS="$cache/kafka-clients-go-$(cksum_of "$sources")"
    build_once "clients of Kafka's in Go" "$sources" "$HERMES_GO_CLIENTS" \
        go build -trimpath -ldflags='-s -w' -o driver .
}

# Clients of Kafka's in other languages, for the soak: the oldest of Java's, those in Go, and kafkajs.
ensure_kafka_clients() {
    local support="$root/tests/support"
    ensure_jars HERMES_OLD_KAFKA_JARS "Kafka's client" kafka-2.1 kafka-clients
    ensure_go_clients
    export HERMES_NODE_CLIENTS="$cache/kafka-clients-node-$(cksum_of "$support/node")"
    build_once "kafkajs" "$support/node" "$HERMES_NODE_CLIENTS" \
        npm ci --ignore-scripts --no-audit --no-fund
}

# The tests that two of those clients bring along, franz-go and librdkafka, for the soak.
ensure_client_suites() {
    local sources="$root/tests/support/client_suites"
    export HERMES_CLIENT_SUITES="$cache/client-suites-$(cksum_of "$sources")"
    build_once "the tests of Kafka's clients" "$sources" "$HERMES_CLIENT_SUITES" ./build
}

cksum_of() { cat "$1"/* | cksum | tr -s ' ' -; }

# build_once WHAT SOURCES DIRECTORY COMMAND...: run a command in a copy of the sources, which becomes DIRECTORY.
build_once() {
    local what="$1" sources="$2" directory="$3" partial
    shift 3
    [ -d "$directory" ] && return
    command -v "$1" >/dev/null || [ -x "$sources/$1" ] || die "The tests need $1, for $what. Install it, for instance with
    Debian, Ubuntu:  sudo apt-get install golang nodejs npm"
    say "building $what with $1 ..."
    mkdir -p "$cache"
    partial="$(mktemp -d "$directory.XXXXXX")"
    cp "$sources"/* "$partial"
    if ! (cd "$partial" && "$@") >"$partial/log" 2>&1; then
        tail -n 15 "$partial/log" >&2
        rm -rf "$partial"
        die "$1 could not build $what (see above); are its registries reachable?"
    fi
    # Of two that built it at once, the first has made it.
    mv -T "$partial" "$directory" 2>/dev/null || rm -rf "$partial"
}

prepare_environment() {
    make_venv
    install_hermes "${1:-}"
}
