# Sourced by scripts/lab and scripts/test: finds or installs what they need.
# Python packages come by uv (or pip), JavaScript packages by npm, and system packages that only
# the tests need by apt-get, and only when they are absent.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n\033[1m== %s\033[0m\n' "$*" >&2; }
die() { printf 'hloscope: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else return 1; fi
}

apt_updated=
apt_install() { # package... ; only where apt-get is
  command -v apt-get >/dev/null || return 1
  if [ -z "$apt_updated" ]; then as_root apt-get update -qq || return 1; apt_updated=1; fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

find_python() {
  for p in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    if [ -n "$p" ] && command -v "$p" >/dev/null &&
      "$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$p"
      return
    fi
  done
  die "Python 3.11 or newer is needed; none found. Install it, or name it: PYTHON=/path/to/python3 $0"
}

need_node() {
  command -v node >/dev/null || die "Node 20 or newer is needed; none found. Install nodejs and npm."
  node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' ||
    die "Node 20 or newer is needed; found $(node --version)."
}

make_venv() { # directory
  local dir=$1 python
  mkdir -p "$dir"
  # Ours says "type": "module", which node would believe of scripts in there too: JupyterLab's yarn.
  [ -e "$dir/package.json" ] || echo '{"private": true}' >"$dir/package.json"
  if [ -x "$dir/bin/python" ] && "$dir/bin/python" -c 'import pip' 2>/dev/null; then return; fi
  python=$(find_python)
  if ! "$python" -m venv "$dir" 2>/dev/null; then
    rm -rf "$dir/bin" "$dir/lib" "$dir/pyvenv.cfg"
    apt_install python3-venv python3-pip || true
    "$python" -m venv "$dir" ||
      die "cannot make a virtual environment with $python; on Debian install python3-venv."
  fi
}

pip_install() { # venv, arguments of pip install
  local dir=$1
  shift
  if [ ! -x "$dir/bin/uv" ]; then "$dir/bin/python" -m pip install -q uv || true; fi
  if [ -x "$dir/bin/uv" ] && "$dir/bin/uv" pip install -q --python "$dir/bin/python" "$@"; then return; fi
  "$dir/bin/python" -m pip install -q "$@"
}

install_locked() { # venv, requirements file: once per content of the file
  local dir=$1 file=$2 stamp
  stamp="$dir/.installed-$(sha256sum "$file" | cut -c1-16)"
  if [ ! -e "$stamp" ]; then
    pip_install "$dir" --no-deps -r "$file"
    touch "$stamp"
  fi
}

npm_install() { # once per content of the lock file
  local stamp
  stamp="node_modules/.installed-$(sha256sum package-lock.json | cut -c1-16)"
  if [ ! -e "$stamp" ]; then
    npm ci --no-fund --no-audit --loglevel=error
    touch "$stamp"
  fi
}
