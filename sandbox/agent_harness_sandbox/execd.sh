# The exec server of images without Python: process 1 is bash, spoken to over the same attached stream as execd.py.
#
# The host sends one line of shell words (quoted by it, plain ASCII), then as many raw bytes as the line says. What
# runs writes to stream 2 and to nothing else; when all of it is dead, this process ends stream 2 with the nonce of
# the request and answers with a line on stream 1. Nothing inside knows the nonce or reaches stream 1: process 1 is
# started from a copy of bash that nobody may read, which makes it undumpable, so that a child with the same uid can
# neither trace it nor open /proc/1/fd or /proc/1/mem. As process 1 it is immune to KILL and STOP from inside.
if [ "$1" != in ]; then
  mkdir -m 700 /tmp/.harness-init && cp "$BASH" /tmp/.harness-init/bash && chmod 111 /tmp/.harness-init/bash || exit 3
  exec 4>/proc/self/oom_score_adj
  exec /tmp/.harness-init/bash -p -c "$BASH_EXECUTION_STRING" bash in "$BASH"
fi
rm -rf /tmp/.harness-init
unset ${!_ah_*} OLDPWD
_ah_bash=$2 _ah_script=/tmp/.harness-script
exec 3>&2 2>/dev/null
for _ah_ in {1..31}; do
  case $_ah_ in 9 | 17 | 19) ;; *) trap : "$_ah_" ;; esac # handled, so that a child has the default again
done
trap _ah_stop=1 USR1 # the host's word; from inside it ends only the sender's own command

_ah_take() { # bytes: exactly so many of the stream, and not one more. Every program costs a start: one is enough for most
  local part=$(($1 < 4194304 ? $1 : 65536))
  ((part == 0 || $1 / part == 0)) || dd bs=$part count=$(($1 / part)) iflag=fullblock
  ((part == 0 || $1 % part == 0)) || dd bs=$(($1 % part)) count=1 iflag=fullblock
}

_ah_rest() { # what nobody took, so that the next line of the stream is a line
  while IFS= read -r -N 65536 _; do :; done
}

_ah_end() {
  printf %s "$_ah_nonce" >&3
  printf '%s\n' "$*"
}

_ah_sweep() { # end every other process; kill fails when there is none left
  local until=$((SECONDS + 6))
  while kill -9 -1; do
    ((SECONDS < until)) || return 1
  done
}

_ah_kills() { # how often the kernel ended a process here for want of memory
  local file key value
  for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
    while read -r key value; do
      [ "$key" != oom_kill ] || _ah_oom=$value
    done <"$file"
  done
}

# What `help` runs, nothing else being alive meanwhile. They end with 40: a link, 41: no regular file, 42: too large,
# 43: not permitted, 44: not there, 45: read-only, 46: full.
_ah_walk() { # paths from the outermost on, the last is the file
  local step
  for step; do [ ! -L "$step" ] || exit 40; done
  file=$step
}

_ah_why() { # what a program said
  case $1 in *Read-only*) exit 45 ;; *denied*) exit 43 ;; *space*) exit 46 ;; *) exit 41 ;; esac
}

setup() { # workspace places
  local workspace=$1 tool place why
  cat /proc/self/status && echo == && cat /proc/net/dev && echo ==
  for tool in bash git; do echo "$tool=$(type -P $tool)"; done
  mkdir -p -m 700 "$HOME"
  [ -e "$HOME/.gitconfig" ] || printf '[user]\n\tname = agent\n\temail = agent@localhost\n' >"$HOME/.gitconfig"
  cat /proc/1/environ >/dev/null && echo open=yes
  [ -r "$workspace" ] && [ -x "$workspace" ] && echo usable=yes
  shift
  for place; do
    why=$({ : >"$place/.$$.tmp" && rm -f "$place/.$$.tmp"; } 2>&1)
    printf '%s=%s\n' "$place" "${why##*: }"
  done
}

get() { # limit steps
  local file limit=$1
  shift && _ah_walk "$@"
  [ -e "$file" ] || exit 44
  [ -f "$file" ] || exit 41
  [ -r "$file" ] || exit 43
  (($(stat -c %s "$file") <= limit)) || exit 42
  cat "$file"
}

put() { # name-beside steps
  local file why mode=644 beside=$1
  shift && _ah_walk "$@"
  beside=${file%/*}/$beside
  why=$(mkdir -p "${file%/*}" 2>&1) || _ah_why "$why"
  if [ -e "$file" ]; then
    [ -f "$file" ] || exit 41
    [ -w "$file" ] || exit 43
    mode=$(stat -c %a "$file")
  fi
  why=$({ cat >"$beside" && chmod $mode "$beside" && mv -f "$beside" "$file"; } 2>&1) && return
  rm -f "$beside"
  _ah_why "$why"
}

keep() { # path old-paths: a whole output
  local path=$1
  shift
  (($# == 0)) || rm -f "$@"
  [ ! -e "$path" ] || rm -rf "$path" # a FIFO there would wait for a reader for ever
  [ -d "${path%/*}" ] || mkdir -p "${path%/*}"
  set -C
  cat >"$path" || [ -s "$path" ]
}

help() { # nonce bytes function arguments: one of the above, with the bytes for its input
  _ah_nonce=$1
  _ah_take "$2" | (
    shift 2
    exec 4>&-
    (LC_ALL=C && "$@") >&3 3>&-
    _ah_code=$?
    _ah_rest
    exit $_ah_code
  )
  _ah_end $?
}

sweep() {
  _ah_nonce=$1
  if _ah_sweep; then _ah_end swept; else _ah_end broken; fi
}

run() { # nonce folder bytes script variables: one command; the bytes are a script too long for an argument
  local child watcher code before state=exited
  _ah_nonce=$1 _ah_stop=
  (($3 == 0)) || _ah_take "$3" | { rm -rf $_ah_script && cat >$_ah_script; _ah_rest; }
  _ah_kills
  before=$_ah_oom
  printf 1000 >&4 # the kernel's victim is the command, never this process
  set -m          # a process group of its own, and no signal ignored
  (
    exec >/proc/self/fd/3 || exec >&3 # opened anew: what a command does to its own stream stays its own
    exec 2>&1 3>&- 4>&-
    cd -- "$2" || exit 126
    SHLVL=0
    script=$4
    (($3 == 0)) || { exec 9<$_ah_script && rm -f $_ah_script && script='. /proc/self/fd/9'; } || exit 126
    shift 4
    (($# == 0)) || export -- "$@" || exit 126
    exec -a bash "$_ah_bash" -c "$script"
  ) </dev/null &
  child=$!
  set +m
  printf 0 >&4
  while :; do
    if [ -z "$watcher" ]; then # the host says nothing meanwhile, but it may hang up
      (read -r line || exit 91) <&0 >/dev/null 3>&- 4>&- &
      watcher=$!
    fi
    wait -n
    kill -0 $child || break
    [ -z "$_ah_stop" ] || { state=stopped && break; }
    kill -0 $watcher && continue
    wait $watcher
    [ $? != 91 ] || exit 0
    watcher=
  done
  kill -9 $watcher && wait $watcher # a wait costs less than the sweep's asking again and again
  _ah_sweep || state=broken
  wait $child
  code=$?
  (($3 == 0)) || rm -f $_ah_script
  _ah_kills
  [ "$before" = "$_ah_oom" ] || state=killed
  _ah_end $state $code
}

echo hello
while IFS= read -r _ah_line; do eval "$_ah_line"; done
