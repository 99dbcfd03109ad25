# Sourced by samples/quickstart.sh and tests/run.sh, from the top folder: brings a Debian 12 machine to where it can build.
# What is there already is left alone, so that a second run takes seconds.

PACKAGES=(g++ cmake ninja-build pkg-config python3-venv libtomlplusplus-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
          libfmt-dev libgtest-dev libgloo-dev openmpi-bin libopenmpi-dev)

say() { printf '== %s\n' "$*"; }

install_packages() {
  local missing=() package
  for package in "${PACKAGES[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    echo "These Debian packages are missing; ask for them, or run this as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  say "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# .venv from requirements.txt, by Debian's own Python. The stamp is the hash of what is in it.
install_python_packages() {
  local stamp
  stamp=.venv/installed-$(sha256sum requirements.txt | cut -c1-16)
  [ -e "$stamp" ] && return
  say "installing LibTorch and the Python packages of requirements.txt into .venv (some 5 GB)"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps -r requirements.txt
  rm -f .venv/installed-*
  touch "$stamp"
}

# Compile jobs: a file that includes LibTorch takes up to 2 GB.
jobs() {
  local cores gigabytes limit
  cores=$(nproc)
  gigabytes=$(($(awk '/^MemAvailable/ {print $2}' /proc/meminfo) / 1000000))
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [ "$limit" != max ] && [ $((limit / 1000000000)) -lt "$gigabytes" ]; then gigabytes=$((limit / 1000000000)); fi
  local by_memory=$((gigabytes / 2))
  [ "$by_memory" -lt 1 ] && by_memory=1
  echo "${JOBS:-$((cores < by_memory ? cores : by_memory))}"
}

# build <preset> [target...]
build() {
  local preset=$1
  shift
  say "building, preset $preset"
  cmake --preset "$preset" >"$(log "$preset")" || { cat "$(log "$preset")" >&2; exit 1; }
  cmake --build "build/$preset" -j "$(jobs)" ${1:+--target "$@"}
}

log() {
  mkdir -p build
  echo "build/configure-$1.log"
}

install_packages
install_python_packages
