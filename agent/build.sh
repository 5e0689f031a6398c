#!/usr/bin/env bash
# The agent's jar: build.sh [OUTPUT [OVERLAY]]   (default: cleanerd/agent/cleanerd-agent.jar)
#
# OVERLAY: a directory whose sources replace those of the same name. Tests build their agents in this way.
# The build id is a hash of all sources. The manifest and the class Build, for `info`, contain it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output=${1:-$here/../cleanerd/agent/cleanerd-agent.jar}
overlay=${2:-}

for tool in javac jar; do
  command -v "$tool" >/dev/null || { echo "build.sh: $tool is missing: install the Debian package openjdk-17-jdk-headless" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -R "$here/src" "$here/unix" "$here/stub" "$work/"
[ -z "$overlay" ] || cp -R "$overlay/." "$work/src/"
id=$(cd "$work" && find src unix stub -name '*.java' | LC_ALL=C sort | xargs cat | sha256sum | cut -c1-16)
printf 'package cleanerd.agent;\n\n/** Made by build.sh. */\nfinal class Build {\n    static final String ID = "%s";\n\n    private Build() {}\n}\n' \
  "$id" >"$work/src/cleanerd/agent/Build.java"

compile() { # release, sources, directory for the classes, which is also the class path
  find "$2" -name '*.java' -print0 |
    xargs -0 javac -J-Xmx256m -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -proc:none -Xlint:all,-options -Werror --release "$1" -encoding UTF-8 -cp "$3" -d "$3"
}
mkdir -p "$work/classes/implementation"
compile 8 "$work/stub" "$work/classes"
compile 11 "$work/src" "$work/classes/implementation"
compile 17 "$work/unix" "$work/classes/implementation" # a Java 11 never loads these

cat >"$work/manifest" <<MANIFEST
Premain-Class: cleanerd.agent.stub.Agent
Agent-Class: cleanerd.agent.stub.Agent
Cleanerd-Agent-Build: $id
MANIFEST
jar -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC --create --file "$work/agent.jar" --manifest "$work/manifest" --date 2024-01-01T00:00:00Z -C "$work/classes" .
mkdir -p "$(dirname "$output")"
cp "$work/agent.jar" "$output.new"
mv "$output.new" "$output"
