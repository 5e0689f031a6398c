#!/usr/bin/env bash
# The Kafka jars and the judges compiled against them: fetch.sh [3.6] [3.9] [4.3] [4.4]   (3.9 and 4.3 when none is named).
# The jars alone, of any profile in pom.xml:           fetch.sh --jars 4.4 ...
#
# Prints one line a release when all is there:  <profile> <version> <jars directory> <judge classes directory or ->
# Jars: ${KAFKA_LIBS:-.cache/kafka}/libs-X.Y.Z/ (of 3.9-tests: libs-X.Y.Z-tests/).
# Judges: .cache/kafka/judge-X.Y.Z/, compiled again when a source changed.
# Both are made beside their place and renamed, so an interrupted run leaves nothing half done. KAFKA_MVN: another mvn.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=$top/.cache/kafka
libs_root=${KAFKA_LIBS:-$cache}
mkdir -p "$cache" "$libs_root"
libs_root=$(cd "$libs_root" && pwd)

die() {
  echo "fetch.sh: $*" >&2
  exit 1
}

# version_of 4.3 -> 4.3.1, read from the profile in the pom
version_of() {
  sed -n "/<id>kafka-$1<\/id>/,/<\/profile>/s/.*<kafka.version>\(.*\)<\/kafka.version>.*/\1/p" "$here/pom.xml"
}

asked_of() { # profile -> what of the pom its jars come from: another release changes nothing for this one
  sed -n "1,/<profiles>/p;/<id>kafka-$1<\/id>/,/<\/profile>/p" "$here/pom.xml" | cksum
}

fetch_jars() { # profile, target
  local profile=$1 target=$2 new stamp
  stamp=$(asked_of "$profile")
  [ -f "$target/.complete" ] && [ "$(cat "$target/.complete")" = "$stamp" ] && return 0
  command -v "${KAFKA_MVN:-mvn}" >/dev/null || die "mvn is missing: install the Debian package maven"
  new=$(mktemp -d "$target.XXXXXX")
  "${KAFKA_MVN:-mvn}" -q -B -C -Dstyle.color=never -f "$here/pom.xml" -P "kafka-$profile" dependency:copy-dependencies \
    -DoutputDirectory="$new" >&2 || { rm -rf "$new"; die "mvn could not fetch the jars of Kafka $profile"; }
  echo "$stamp" >"$new/.complete"
  chmod 755 "$new"
  rm -rf "$target"
  mv "$new" "$target"
}

adapter_of() { # profile -> the release whose adapter its judges are made from, with the changes of sed/
  case $1 in
    3.6) echo 3.9 ;;
    4.4) echo 4.3 ;;
    *) echo "$1" ;;
  esac
}

list_sources() { # profile; the last of a name is the one that counts
  local folder
  for folder in "$here/java" "$here/java-$(adapter_of "$1")" "$here/java-$1"; do
    [ ! -d "$folder" ] || printf '%s\n' "$folder"/*.java
  done
}

sources_of() { # profile -> what the compiled judges were made from
  local changes=$here/sed/$1.sed
  { list_sources "$1" | sort -u | xargs cat && asked_of "$1" && { [ ! -f "$changes" ] || cat "$changes"; }; } | cksum
}

compile_judges() { # profile, jars, target
  local profile=$1 libs=$2 target=$3 stamp new
  stamp=$(sources_of "$profile")
  [ -f "$target/.complete" ] && [ "$(cat "$target/.complete")" = "$stamp" ] && return 0
  command -v javac >/dev/null || die "javac is missing: install the Debian package openjdk-17-jdk-headless"
  new=$(mktemp -d "$target.XXXXXX")
  mkdir "$new/source"
  list_sources "$profile" | while read -r source; do cp "$source" "$new/source/"; done
  [ ! -f "$here/sed/$profile.sed" ] || sed -i -f "$here/sed/$profile.sed" "$new"/source/*.java
  javac -J-Xmx256m -nowarn -proc:none -Xlint:none --release 17 -d "$new/classes" -cp "$libs/*" "$new"/source/*.java >&2 ||
    { rm -rf "$new"; die "the judges do not compile against Kafka $profile"; }
  rm -rf "$new/source"
  mv "$new"/classes/* "$new/"
  rmdir "$new/classes"
  echo "$stamp" >"$new/.complete"
  chmod 755 "$new"
  rm -rf "$target"
  mv "$new" "$target"
}

exec 9>"$cache/.lock"
flock 9
judges=yes
[ "${1:-}" != --jars ] || { judges=; shift; }
[ $# -gt 0 ] || set -- 3.9 4.3
for profile in "$@"; do
  version=$(version_of "$profile")
  [ -n "$version" ] || die "no profile kafka-$profile in pom.xml"
  libs=$libs_root/libs-$version${profile##*[0-9]} # 3.9-tests lies beside 3.9
  judge=-
  fetch_jars "$profile" "$libs"
  if [ -n "$judges" ]; then
    judge=$cache/judge-$version
    compile_judges "$profile" "$libs" "$judge"
  fi
  echo "$profile $version $libs $judge"
done
