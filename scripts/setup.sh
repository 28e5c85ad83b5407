#!/usr/bin/env bash
# All set-up: a virtual environment in .venv, PyTorch (the CPU build where there is no GPU), the
# package with its development tools, the GL libraries that off-screen rendering needs, and a browser
# for the tests of the report.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
. scripts/torch.sh

if [ "$(id -u)" = 0 ]; then as_root=""; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then as_root="sudo"; else as_root="none"; fi
apt_updated=""
debian_install() {  # installs Debian packages, or says exactly which are missing and goes on
    if [ "$as_root" = none ] || ! command -v apt-get >/dev/null; then return 1; fi
    if [ -z "$apt_updated" ]; then $as_root apt-get update -qq || true; apt_updated=yes; fi
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

command -v "$PYTHON" >/dev/null || debian_install python3 python3-venv || { say "Python 3.11 or newer is needed: install the packages python3 and python3-venv, then run this again."; exit 1; }
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "$("$PYTHON" --version) is too old: mimex needs Python 3.11 or newer. Name another one: make setup PYTHON=python3.12"; exit 1; }

if [ ! -x .venv/bin/pip ]; then
    say "creating .venv with $("$PYTHON" --version)"
    if ! "$PYTHON" -m venv .venv 2>/dev/null; then
        rm -rf .venv
        version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        debian_install "python$version-venv" || debian_install python3-venv || { say "the venv module is missing: install the package python3-venv, then run this again."; exit 1; }
        "$PYTHON" -m venv .venv
    fi
fi

install_torch .venv

say "installing mimex and its development tools"
.venv/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'

# Off-screen rendering: EGL with Mesa's software driver.
gl_packages="libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"
if [ "$(uname -s)" = Linux ] && ! { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q 'libEGL_mesa\|libEGL_nvidia'; then
    say "installing the GL libraries for pixels: $gl_packages"
    # shellcheck disable=SC2086
    debian_install $gl_packages || say "could not install them (no root). Pixels will not work until someone runs: apt-get install $gl_packages. Everything else does."
fi

# The report's page is tested in a real browser.
if [ "$(uname -s)" = Linux ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
    say "installing a browser for the tests of the report: chromium"
    debian_install chromium || say "could not install it (no root). Those tests are skipped until someone runs: apt-get install chromium. Everything else works."
fi
say "ready"
