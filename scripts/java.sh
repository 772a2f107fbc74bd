#!/usr/bin/env bash
# Print the home of a Java 17 or newer. Spark runs on the JVM, and machines often hold several: JAVA_HOME is asked
# first, then PATH, then the usual folders. As root on Debian or Ubuntu a missing Java is installed; anywhere else
# one sentence says what to install.
set -euo pipefail

MINIMUM=17

# The home of the Java behind command $1 when it is new enough. The JVM is asked itself: `java` on PATH may be a
# link, a shim or, on macOS, a stub that only opens a dialogue.
home_of() {
    local settings version home
    settings=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    home=$(sed -n 's/^ *java\.home = //p' <<<"$settings")
    [[ $version =~ ^[0-9]+$ && $version -ge $MINIMUM && -x $home/bin/java ]] && printf '%s\n' "$home"
}

find_java() {
    local command
    for command in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java; do
        if [[ -n $command && -x $command ]] && home_of "$command"; then
            return 0
        fi
    done
    return 1
}

install_java() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    echo "no Java $MINIMUM or newer found: installing one with apt-get" >&2
    # newer releases no longer carry 17, so the package names are tried in turn
    apt-get update -qq >&2 || return 1
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >&2; then
            return 0
        fi
    done
    return 1
}

find_java && exit 0
install_java && find_java && exit 0
echo "error: Spark needs Java $MINIMUM or newer, and none was found: install a JDK or JRE (Debian and Ubuntu:" \
    "openjdk-17-jre-headless, macOS: brew install openjdk@17) or point JAVA_HOME at one." >&2
exit 1
