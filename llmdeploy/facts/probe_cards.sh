# The vendors' tools; a part of probe.sh. Each runs under a limit in the background, so that even a process that
# cannot be killed (a driver that hangs) holds nothing up, and is not called again after it hung once.

hung= work=

prepare() {   # a folder for the answers; asked for once there is a tool to call
  work=$(mktemp -d 2>/dev/null) || work=
  [ -n "$work" ] && trap 'rm -rf "$work"' EXIT && trap 'exit 143' HUP INT TERM
}

guard() {
  limit=$1
  shift
  [ -n "$work" ] || { t "$limit" "$@"; return; }
  rm -f "$work/code"
  { t "$limit" "$@"; echo $? >"$work/part"; mv "$work/part" "$work/code"; } >"$work/out" 2>&1 </dev/null &
  left=$(((limit + 4) * 20))
  until [ -e "$work/code" ]; do
    left=$((left - 1))
    [ $left -gt 0 ] || { cat "$work/out"; return 137; }
    sleep 0.05 2>/dev/null || { sleep 1; left=$((left - 19)); }
  done
  cat "$work/out"
  first "$work/code"
  return "$line"
}

ask() {   # LIMIT TOOL ARGUMENTS: one call, none after the tool hung
  case " $hung " in *" $2 "*) echo "$2 hung before and was not called again"; return 125 ;; esac
  guard "$@"
  note "$2" $?
}

note() {   # TOOL EXIT_CODE: remembers a hang, also one that a subshell of `$(ask …)` saw
  case $2 in 124|137) hung="$hung $1" ;; esac
  return "$2"
}

has() { command -v "$1" >/dev/null 2>&1; }

vendor_tools() {
  for tool in nvidia-smi amd-smi rocm-smi npu-smi hy-smi mthreads-gmi cnmon mx-smi ht-smi ixsmi xpu-smi xpu_smi xpumcli; do
    has "$tool" || continue
    echo "$tool"
    [ -n "$work" ] || prepare
  done
  return 0
}

nvidia_base() {
  has nvidia-smi || { echo '#tool no nvidia-smi'; return 0; }
  ask 10 nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,memory.total,memory.free,compute_cap,driver_version,ecc.errors.uncorrected.volatile.total \
    --format=csv,noheader,nounits
}

fields() {   # QUERY FIELDS: the rows, without the fields that this version does not know
  wanted=$2 tries=0
  while [ $tries -lt 24 ]; do
    rows=$(ask 10 nvidia-smi "$1=$wanted" --format=csv,noheader,nounits)
    note nvidia-smi $?
    code=$?
    case $rows in
      *'is not a valid field'*) ;;
      *) printf '#fields %s\n%s\n' "$wanted" "$rows"; return $code ;;
    esac
    bad=${rows#*\"}; bad=${bad%%\"*}
    case $bad in
      clocks_event_reasons.*) wanted=$(printf %s "$wanted" | sed 's/clocks_event_reasons/clocks_throttle_reasons/g') ;;
      *) wanted=$(printf ',%s,' "$wanted" | sed "s/,$bad,/,/; s/^,//; s/,\$//") ;;
    esac
    tries=$((tries + 1))
  done
  printf '%s\n' "$rows"
  return 2
}

nvidia_health() {
  reasons=clocks_event_reasons
  fields --query-gpu "index,pci.bus_id,vbios_version,temperature.gpu,temperature.gpu.tlimit,power.draw,power.limit,power.default_limit,utilization.gpu,$reasons.hw_slowdown,$reasons.hw_thermal_slowdown,$reasons.hw_power_brake_slowdown,$reasons.sw_thermal_slowdown,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,persistence_mode,compute_mode,mig.mode.current,mig.mode.pending,ecc.mode.current,ecc.mode.pending,ecc.errors.uncorrected.aggregate.sram,ecc.errors.corrected.volatile.total,retired_pages.dbe,retired_pages.sbe,retired_pages.pending,fabric.state"
}
nvidia_rows() { fields --query-remapped-rows gpu_bus_id,remapped_rows.pending,remapped_rows.failure,remapped_rows.uncorrectable; }

amd() {
  if has amd-smi; then
    echo '#tool amd-smi static, metric'
    ask 15 amd-smi static --json && ask 15 amd-smi metric --json && return 0
  fi
  has rocm-smi || return 1
  echo '#tool rocm-smi'
  ask 15 rocm-smi --showid --showbus --showproductname --showuniqueid --showmeminfo vram --showuse --showtemp --showpower \
    --showmaxpower --showdriverversion --showvbios --showcomputepartition --showmemorypartition --json || ask 15 rocm-smi
}

hygon() {
  said=$(ask 15 hy-smi --showproductname --showbus --showuniqueid --showmeminfo vram --showuse --showtemp --showpower --showdriverversion --json)
  note hy-smi $? && printf '%s\n' "$said"
  ask 15 hy-smi
}

moore() {
  said=$(ask 15 mthreads-gmi -q --json)
  note mthreads-gmi $? && case $said in *'"GPU"'*) printf '%s\n' "$said"; return 0 ;; esac
  ask 15 mthreads-gmi
}

kunlun() { if has xpu-smi; then ask 15 xpu-smi; else ask 15 xpu_smi; fi; }

intel() {
  tool=xpu-smi
  has xpu-smi || tool=xpumcli
  listed=$(ask 15 "$tool" discovery -j)
  note "$tool" $?
  code=$?
  printf '%s\n' "$listed"
  [ $code = 0 ] || return $code
  for id in $(printf '%s\n' "$listed" | sed -n 's/.*"device_id": *\([0-9]*\).*/\1/p'); do
    ask 15 "$tool" discovery -d "$id" -j
  done
}

metax() {
  tool=mx-smi
  has mx-smi || tool=ht-smi
  ask 15 "$tool" && ask 15 "$tool" -L
}

hccn() {
  has hccn_tool || { echo 'hccn_tool is not there'; return 1; }
  for node in /dev/davinci[0-9]*; do
    [ -e "$node" ] || continue
    id=${node#/dev/davinci}
    said=$(ask 5 hccn_tool -i "$id" -link -g) || { printf '%s\n' "$said"; return 1; }
    printf '%s %s\n' "$id" "${said##*: }"
  done
}

card_sections() {
  now
  section vendor-tools 'command -v' vendor_tools
  section nvidia-smi nvidia-smi nvidia_base
  if has nvidia-smi; then
    now
    section nvidia-health 'nvidia-smi --query-gpu' nvidia_health
    section nvidia-rows 'nvidia-smi --query-remapped-rows' nvidia_rows
    section nvidia-apps 'nvidia-smi --query-compute-apps' \
      ask 10 nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv,noheader
    section nvidia-list 'nvidia-smi -L' ask 10 nvidia-smi -L
    section nvidia-topo 'nvidia-smi topo -m' ask 10 nvidia-smi topo -m
    section nvidia-p2p 'nvidia-smi topo -p2p r' ask 10 nvidia-smi topo -p2p r
    section nvidia-nvlink 'nvidia-smi nvlink -s' ask 10 nvidia-smi nvlink -s
  fi
  now
  if has amd-smi || has rocm-smi; then section amd-smi amd-smi amd; fi
  if has npu-smi; then
    section npu-smi 'npu-smi info' ask 15 npu-smi info
    section hccn 'hccn_tool -link -g' hccn
  fi
  if has hy-smi; then section hy-smi hy-smi hygon; fi
  if has mthreads-gmi; then section mthreads-gmi mthreads-gmi moore; fi
  if has cnmon; then section cnmon cnmon ask 15 cnmon; fi
  if has mx-smi || has ht-smi; then section mx-smi mx-smi metax; fi
  if has ixsmi; then section ixsmi ixsmi ask 15 ixsmi; fi
  case $vendors in
    *0x1d22*) if has xpu-smi || has xpu_smi; then section kunlun-smi xpu-smi kunlun; fi ;;
    *) if has xpu-smi || has xpumcli; then section intel-smi xpu-smi intel; fi ;;
  esac
}
