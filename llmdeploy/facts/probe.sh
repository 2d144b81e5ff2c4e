# Facts of one host, for `sh -s -- PYTHON STATE_ROOT MODEL_STORE SERVICE MODEL MEASURE CERTIFICATE KEY`.
#
# POSIX sh, no root, changes nothing. Its first line is `@mark MARK`; then each section is printed as
#   MARKbegin NAME HOST_TIME TOOL
#   its output, stdout and stderr together
#   MARKend EXIT_CODE
# No tool knows this run's MARK, so no output can pass for one. A line `#tool WORDS` names the tool that answered
# in the end. In place of the words between @ stand the other parts and programs, quoted.
#
# Processes cost most of a quick probe's time: files are read by one awk (probe_files.awk) or by the shell's own
# `read`, what can be cut into lines elsewhere is printed as it is, the time is asked of /proc/uptime, and only what
# may hang runs under `timeout`. A subshell `$(...)` is a process too.

PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin
LC_ALL=C
export PATH LC_ALL
whole() { case $1 in "~") path=$HOME ;; "~/"*) path=$HOME/${1#\~/} ;; *) path=$1 ;; esac; }
whole "$1"; python=$path
whole "$2"; state_root=$path
whole "$3"; model_store=$path
whole "${7-}"; certificate=$path
whole "${8-}"; key=$path
service=$4 model=$model_store/$5 measure=$6

newline='
'
glibc_words=$(timeout -k 2 5 getconf GNU_LIBC_VERSION 2>/dev/null)
if [ -n "$glibc_words" ] || timeout -k 1 5 true 2>/dev/null; then t() { timeout -k 2 "$@"; }
elif timeout 5 true 2>/dev/null; then t() { timeout "$@"; }
else t() { shift; "$@"; }   # the caller's own limit still ends the whole probe
fi

first() {   # the first line of a small file, without a process
  line=
  [ -r "$1" ] && { read -r line <"$1" || [ -n "$line" ]; } 2>/dev/null
}

set -- $(date '+%s %z')
begun=$1 zone=$2 at=$1 up_begun=
if first /proc/uptime; then line=${line%% *} up_begun=${line%%.*}; fi
now() {   # the host's time by what has passed since it was asked for: no process
  if [ -n "$up_begun" ]; then first /proc/uptime; line=${line%% *}; at=$((begun + ${line%%.*} - up_begun)); else at=$(date +%s); fi
}
mark="@$$-$begun-"
echo "@mark $mark"

section() {
  printf '%sbegin %s %s %s\n' "$mark" "$1" "$at" "$2"
  shift 2
  "$@" 2>&1
  printf '\n%send %s\n' "$mark" "$?"
}

glibc() {
  [ -n "$glibc_words" ] && { echo "$glibc_words"; return 0; }
  echo '#tool ldd --version'
  t 5 ldd --version
}

virtualization() {
  if first /run/systemd/container && [ -n "$line" ]; then echo "$line"; return 0; fi   # written by systemd for all
  # the marks and words of systemd-detect-virt itself: these two looks start no process
  [ -e /run/.containerenv ] && { echo '#tool /run/.containerenv'; echo podman; return 0; }
  [ -e /.dockerenv ] && { echo '#tool /.dockerenv'; echo docker; return 0; }
  if command -v systemd-detect-virt >/dev/null; then
    systemd-detect-virt 2>/dev/null || echo none
    return 0
  fi
  echo 'systemd-detect-virt is not there and no container mark was found'
  return 1
}

disks() {   # sets PROBE_DISKS and what df and stat say of them, in one call each, for probe_files.awk
  PROBE_DISKS=
  for purpose in state_root log model_store cache temporary; do
    case $purpose in
      state_root) path=$state_root ;;
      log) path=$state_root/$service/runs ;;
      model_store) path=$model_store ;;
      cache) path=$HOME/.cache ;;
      temporary) path=${TMPDIR:-/tmp} ;;
    esac
    nearest=$path
    while [ ! -e "$nearest" ] && [ "$nearest" != / ] && [ "$nearest" != . ]; do
      case $nearest in */*) nearest=${nearest%/*} nearest=${nearest:-/} ;; *) nearest=. ;; esac
    done
    if [ -d "$nearest" ] && [ -w "$nearest" ] && [ -x "$nearest" ]; then writable=yes; else writable=no; fi
    PROBE_DISKS=$PROBE_DISKS$purpose$newline$path$newline$nearest$newline$writable$newline
    set -- "$@" "$nearest"
  done
  if PROBE_SIZES=$(t 5 df -Pk "$@" /dev/shm 2>/dev/null); then
    shm_row=${PROBE_SIZES##*"$newline"}
    PROBE_SIZES=${PROBE_SIZES%"$newline"*}
    PROBE_INODES=$(df -Pi "$@" 2>/dev/null)
    PROBE_RIGHTS=$(stat -L -c '%a %u' "$@" 2>/dev/null)
    return
  fi
  PROBE_SIZES= PROBE_INODES= PROBE_RIGHTS=   # one of them hangs or fails: each alone, behind an empty header
  for nearest; do
    if row=$(t 5 df -Pk "$nearest" 2>/dev/null); then
      inodes=$(df -Pi "$nearest" 2>/dev/null) rights=$(stat -L -c '%a %u' "$nearest" 2>/dev/null)
    else
      row= inodes= rights=
    fi
    PROBE_SIZES=$PROBE_SIZES$newline${row##*"$newline"}
    PROBE_INODES=$PROBE_INODES$newline${inodes##*"$newline"}
    PROBE_RIGHTS=$PROBE_RIGHTS$rights$newline
  done
}

disk_read() {
  [ "$measure" = yes ] || { echo 'not measured: --quick'; return 1; }
  largest=$(ls -S "$model"/*.safetensors 2>/dev/null | head -n 1)
  [ -n "$largest" ] || { echo "no model file in $model to read"; return 1; }
  # SIGINT makes GNU dd print what it has read so far
  if command -v timeout >/dev/null; then limit='timeout -s INT 3'; else limit=; fi
  answer=$($limit dd if="$largest" of=/dev/null bs=4194304 count=64 iflag=direct 2>&1)
  case $answer in
    *copied*) printf '%s\n' "$answer"; return 0 ;;
    *'records out'*) echo 'this dd prints no rate'; return 1 ;;
  esac
  echo "the page cache cannot be passed by: $answer"
  return 1
}

listening() {   # asked only where the host's Python could not: the kernel walks all connections for each table
  if [ -r /proc/net/tcp ]; then
    awk '$4 == "0A"' /proc/net/tcp /proc/net/tcp6 2>/dev/null
    return 0
  fi
  echo '#tool ss -Hltn'
  t 5 ss -Hltn
}

clock_sync() {   # asked only where the host's Python could not ask the kernel
  answer=$(t 5 timedatectl show -p NTPSynchronized --value 2>/dev/null)
  case $answer in yes|no) echo "$answer"; return 0 ;; esac
  command -v chronyc >/dev/null || { echo 'neither timedatectl nor chronyc answers'; return 1; }
  echo '#tool chronyc tracking'
  t 5 chronyc tracking
}

init() {
  first /proc/1/comm
  echo "init=$line"
  state=
  if [ -S "${XDG_RUNTIME_DIR-/run/user/$own_id}/systemd/private" ]; then
    state=$(XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR-/run/user/$own_id} t 5 systemctl --user is-system-running 2>/dev/null)
  fi
  echo "user_manager=${state:-none}"
}

shm() { if [ -n "$shm_row" ]; then echo "$shm_row"; else df -Pk /dev/shm; fi; }

kernel() { if [ $# = 4 ]; then echo "$1 $3 $4"; else uname -srm; fi; }   # of the words of `uname -snrm`

uname_words() {   # `uname -snrm` without a process where the kernel tells it all (6.1 and newer)
  words=
  for file in ostype hostname osrelease arch; do
    first "/proc/sys/kernel/$file" || { words=$(uname -snrm); return; }
    words="$words $line"
  done
}

user() {   # of `uid=0(root) gid=…`; a user without a name has no brackets
  [ -n "$own_id" ] || { id; return; }
  echo "uid=$own_id"
  name=${own_words#uid=}; name=${name%% *}
  case $name in *\(*) name=${name#*\(}; echo "user=${name%\)}" ;; *) echo "user=$own_id" ;; esac
}

governor() {
  file=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
  if first "$file"; then echo "$line"; else echo none; fi
}

pci() {   # displays (03), accelerators (12) and adapters that carry a fabric (02, 0c06)
  [ -d /sys/bus/pci/devices ] || { echo '/sys/bus/pci is not there'; return 1; }
  for device in /sys/bus/pci/devices/*; do
    first "$device/class" || continue
    case $line in 0x03*|0x12*) class=$line ;; *) continue ;; esac
    driver=-
    [ -e "$device/driver" ] && driver=$(cd -P "$device/driver" && printf %s "${PWD##*/}")
    first "$device/vendor"; vendor=$line
    first "$device/device"
    printf '%s %s %s %s %s\n' "${device##*/}" "$vendor" "$line" "$class" "$driver"
    vendors="$vendors $vendor"
  done
}

nvidia_module() { if [ -r /proc/driver/nvidia/version ]; then cat /proc/driver/nvidia/version; else echo none; fi; }

model() {
  echo "folder=$model"
  [ -d "$model" ] || return 0
  echo "stat=$(t 5 stat -L -c '%a %u' "$model" 2>/dev/null)"
  for file in "$model"/*; do
    [ -f "$file" ] || continue
    size=$(t 5 stat -L -c %s "$file" 2>/dev/null) || size=$(wc -c <"$file")
    printf 'size=%s %s\n' "$size" "${file##*/}"
  done
  grep -q chat_template "$model/tokenizer_config.json" 2>/dev/null && echo template=yes
  [ -r "$model/manifest.json" ] && head -c 4000000 "$model/manifest.json" | sed 's/^/manifest=/'
  return 0
}

python_sections() {   # both programs in one process; the second alone where the first one ended it
  now
  printf '%sbegin runtime %s %s\n' "$mark" "$at" "$python"
  words=$(t 90 "$python" -c "$python_program" "$mark" "$state_root/$service" "$certificate" "$key" "$model" "$measure" 2>&1)
  code=$?
  [ $code = 142 ] && code=124   # its own alarm
  printf '%s\n\n%send %s\n' "$words" "$mark" "$code"
  case $words in *"${mark}begin imports "*) return ;; esac
  now
  case $code in
    126|127) section imports "$python" failed ;;
    *) section imports "$python" t 60 "$python" -c "$python_program" "$mark" - - - "$model" "$measure" ;;
  esac
}
failed() { printf '%s\n' "$words"; return "$code"; }

@HOST@
@CARDS@
files_program=@FILES@
python_program=@PYTHON@

files() {   # prints its sections; `seen` is what it noticed on the way
  set -- /proc/[0-9]*   # without `/stat`: a pattern that goes on costs a look at each of them
  [ -r /etc/ssh/sshd_config ] && set -- "$@" /etc/ssh/sshd_config.d/*.conf /etc/ssh/sshd_config
  disks
  { seen=$(PROBE_DISKS=$PROBE_DISKS PROBE_SIZES=$PROBE_SIZES PROBE_INODES=$PROBE_INODES PROBE_RIGHTS=$PROBE_RIGHTS \
    awk -v mark="$mark" -v at="$at" "$files_program" "$@" 2>&1 >&3 3>&-); } 3>&1
}

main() {
  now
  files
  now
  uname_words
  set -- $words
  section uname 'uname -srm' kernel "$@"
  own_name=${2-}
  section glibc 'getconf GNU_LIBC_VERSION' glibc
  section virtualization systemd-detect-virt virtualization
  section governor cpufreq governor
  section shm 'df /dev/shm' shm
  section model 'stat, manifest.json' model
  section user id user
  section init '/proc/1/comm, systemctl --user' init
  section pci /sys/bus/pci pci
  section nvidia-module /proc/driver/nvidia/version nvidia_module
  host_sections
  card_sections
  now
  section disk-read 'dd iflag=direct' disk_read
  python_sections
  now
  case $words in *'"kind": "listening"'*) ;; *) section listening /proc/net/tcp listening ;; esac
  case $words in *'"kind": "clock"'*) ;; *) section clock-sync timedatectl clock_sync ;; esac
  section stuck /proc/PID/stat stuck
  section clock 'date +%s' date +%s
}
main </dev/null 2>/dev/null
