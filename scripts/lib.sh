# Shared by the shell scripts beside it: where things live, how they report, and which compiler builds
# for wasm. Source it; it changes nothing by itself.
#
#   INGLE_CACHE       everything that is fetched or built lies here (default ~/.cache/ingle)
#   CARGO_TARGET_DIR  native builds (default $INGLE_CACHE/target)
#   INGLE_CHROMIUM    a Chrome or Chromium to use instead of the installed one
#   INGLE_CHROMEDRIVER  a chromedriver of the same version, for the op suite in the browser
#   INGLE_WASM_STD    auto (default), rustup or debian: where the wasm standard library comes from

INGLE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
INGLE_CACHE=${INGLE_CACHE:-$HOME/.cache/ingle}
export INGLE_ROOT INGLE_CACHE
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$INGLE_CACHE/target}

INGLE_MODEL=$INGLE_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf
INGLE_TOOLS=$INGLE_CACHE/tools
LLAMA_CPP_BIN=$INGLE_CACHE/peers/llama.cpp/bin
WLLAMA_DIR=$INGLE_CACHE/peers/wllama

# fail WHAT WHAT_TO_DO_NEXT: says both and ends the script.
fail() {
  printf '\nfailed: %s\n  next: %s\n' "$1" "${2:-see the lines above}" >&2
  exit 1
}

# note LINE: one line of progress, on the error stream so that a script's output stays clean.
note() { printf '%s\n' "$*" >&2; }

# step NAME COMMAND...: runs the command, and says how long it took. The command's own output goes to
# a log, which is shown only when it fails: a set-up that works is a few lines long.
step() {
  local name=$1 log start=$SECONDS
  shift
  mkdir -p "$INGLE_CACHE/logs"
  log=$INGLE_CACHE/logs/$(tr -c 'A-Za-z0-9.\n' '-' <<<"$name").log
  printf '%-58s ' "$name" >&2
  if "$@" >"$log" 2>&1; then
    printf '%4ds\n' $((SECONDS - start)) >&2
    return 0
  fi
  printf 'failed\n\n' >&2
  tail -n 40 "$log" >&2
  note "(the whole log: $log)"
  return 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# as_root COMMAND...: runs it with the rights a package manager needs, or returns 1 with a reason.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    echo "this needs root and there is no sudo: run as root: $*" >&2
    return 1
  fi
}

# The version of a crate that Cargo.lock pins, or nothing.
locked_version() {
  awk -v name="$1" '$0 == "name = \"" name "\"" { getline; gsub(/version = |"/, ""); print; exit }' \
    "$INGLE_ROOT/Cargo.lock"
}

# The first Chrome or Chromium there is, or nothing.
find_chromium() {
  local candidate
  for candidate in "${INGLE_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable \
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" \
    "/Applications/Chromium.app/Contents/MacOS/Chromium"; do
    [ -n "$candidate" ] && command -v "$candidate" && return 0
  done
  return 1
}

# The first chromedriver there is, or nothing. Its version is that of the browser it drives.
find_chromedriver() {
  local candidate
  for candidate in "${INGLE_CHROMEDRIVER:-}" chromedriver /usr/lib/chromium/chromedriver /usr/lib/chromium-browser/chromedriver; do
    [ -n "$candidate" ] && command -v "$candidate" && return 0
  done
  return 1
}

# What wasm is compiled for: every browser with WebGPU has these.
INGLE_WASM_FEATURES=+simd128,+bulk-memory,+mutable-globals,+sign-ext,+nontrapping-fptoint

# wasm_cargo ARGUMENTS...: cargo with whichever compiler has a wasm standard library.
wasm_cargo() {
  case $(cat "$INGLE_CACHE/stamps/wasm-std.route" 2>/dev/null) in
    rustup) CARGO_TARGET_DIR=$INGLE_CACHE/target-wasm cargo "$@" ;;
    debian)
      RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=$INGLE_CACHE/target-wasm-debian \
        CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/wasm-ld-22 \
        /usr/bin/cargo "$@"
      ;;
    *) fail "no wasm standard library is set up" "scripts/setup wasm-std" ;;
  esac
}

# Where wasm_cargo puts what it builds.
wasm_target_dir() {
  case $(cat "$INGLE_CACHE/stamps/wasm-std.route" 2>/dev/null) in
    debian) echo "$INGLE_CACHE/target-wasm-debian" ;;
    *) echo "$INGLE_CACHE/target-wasm" ;;
  esac
}
