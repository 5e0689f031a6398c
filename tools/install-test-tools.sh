#!/usr/bin/env bash
# What only tests and checks need from the system: a browser for the status page, Prometheus with its promtool for metrics
# and alert rules, systemd's programs for the units, rpmbuild for the RPM.
# Prometheus is taken out of its package: installing that would start a server.
set -euo pipefail
cd "$(dirname "$0")/.."

install() {
    if ! command -v apt-get >/dev/null || [[ $(id -u) -ne 0 ]]; then
        echo "install these first: $*" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

command -v systemd-analyze >/dev/null || install systemd
command -v rpmbuild >/dev/null || install rpm
command -v chromium >/dev/null || install chromium fonts-dejavu-core

if ! { command -v promtool && command -v prometheus; } >/dev/null && [[ ! -x .cache/prometheus/usr/bin/prometheus ]]; then
    if ! command -v apt-get >/dev/null; then
        echo "install this first: Prometheus, with promtool" >&2
        exit 1
    fi
    mkdir -p .cache/prometheus
    cd .cache/prometheus
    if ! apt-get -o APT::Sandbox::User=root download -q prometheus; then
        [[ $(id -u) -eq 0 ]] || exit 1
        apt-get update -q
        apt-get -o APT::Sandbox::User=root download -q prometheus
    fi
    dpkg -x prometheus_*.deb .
    rm prometheus_*.deb
    find . -type f ! -name promtool ! -name prometheus -delete
fi
