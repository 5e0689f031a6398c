#!/usr/bin/env bash
# What the build needs from the system: Debian packages where they are missing, and only then, and only as root.
set -euo pipefail

missing=()
command -v javac >/dev/null || missing+=(openjdk-17-jdk-headless)
command -v mvn >/dev/null || missing+=(maven)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)

if ((${#missing[@]})); then
    if ! command -v apt-get >/dev/null || [[ $(id -u) -ne 0 ]]; then
        echo "install these first: ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

if ! command -v cargo >/dev/null; then
    echo "install Rust 1.95 or newer first (rustup, or your distribution's rustc and cargo)" >&2
    exit 1
fi
if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    rustup component add rustfmt clippy
fi
