#!/usr/bin/env bash
# Hostile configuration files: run.sh [SECONDS]. Each format's target runs so long (600) under libFuzzer with ASan and UBSan, as
# many at a time as there are cores. Prints a line a target; ends with an error and the input where one found something.
set -euo pipefail
cd "$(dirname "$0")/../.."
. cmake/bootstrap.sh
PACKAGES=(clang libclang-rt-dev llvm) # llvm: names in reports
install_packages
build fuzz

export folder=build/fuzz/run seconds=${1:-600} UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=8
rm -rf "$folder/start" # the corpus stays from run to run
mkdir -p "$folder/findings"
python3 tests/fuzz_configs/seeds.py "$folder/start"

fuzz() {
  local format=$1 log=$folder/$1.log result=clean
  mkdir -p "$folder/corpus-$format"
  # Ten seconds and 1 GiB are far more than any of these inputs takes.
  "build/fuzz/bin/fuzz_$format" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=32768 \
    -dict="$folder/start/words.dict" -artifact_prefix="$folder/findings/$format-" -print_final_stats=1 \
    "$folder/corpus-$format" "$folder/start/seeds" >"$log" 2>&1 ||
    result="FAILED, $(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1), see $log"
  printf '%-5s %s executions, %s a second, coverage %s, features %s, %s MB: %s\n' "$format" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")" \
    "$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)" "$(sed -n 's/.* ft: \([0-9]*\).*/\1/p' "$log" | tail -n 1)" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")" "$result"
  [ "$result" = clean ]
}
export -f fuzz

say "fuzzing for $seconds seconds a format"
# No leftovers of a host's in the environment: readers look at it.
printf '%s\n' json keys toml yaml | env -u FSDP2_PLUGINS -u FSDP_VERSION xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
