# The host's upkeep, networks and other users' traces; a part of probe.sh.

own_words=$(id)
own_id=${own_words#uid=}; own_id=${own_id%%[!0-9]*}

kernel_log() {
  read -r up _ </proc/uptime
  echo "boot=$((at - ${up%%.*}))"
  wanted='NVRM|Xid|SXid|fallen off the bus|amdgpu|\[drv_|devdrv|ascend|Killed process|blocked for more than|Kernel panic|BUG: unable|Oops:|Hardware Error|EDAC|Machine Check|AER:|peermem|Lost carrier|Link is Down|Link DOWN|VFS: file-max'
  found=$({ dmesg 2>&1 || echo 'dmesg ended badly'; } | awk -v wanted="$wanted|^dmesg" \
    '$0 ~ wanted {row[n++] = $0} END {for (i = n > 400 ? n - 400 : 0; i < n; i++) print row[i]}')
  case $found in
    *'dmesg ended badly') ;;
    *) echo '#tool dmesg'; printf '%s\n' "$found"; return 0 ;;
  esac
  case $own_words in *'(systemd-journal)'*|*'(adm)'*|*'(wheel)'*) may_read=yes ;; *) may_read= ;; esac
  if [ -n "$may_read" ] && has journalctl; then
    echo '#tool journalctl -k'
    t 10 journalctl -k -b -q --no-pager -o short-unix 2>/dev/null | grep -E "$wanted" | tail -n 400
    return 0
  fi
  printf '%s\n' "${found%%"$newline"*}"
  return 1
}

kernel_arguments() {   # only these: others may hold secrets
  read -r arguments </proc/cmdline || return 1
  for argument in $arguments; do
    case $argument in
      iommu=*|iommu.*=*|intel_iommu=*|amd_iommu=*|pci=*|pcie_*=*|nvidia*.*=*|NVreg_*=*|isolcpus=*|transparent_hugepage=*|mitigations=*|swiotlb=*)
        echo "$argument" ;;
    esac
  done
  return 0
}

iommu() { for unit in /sys/class/iommu/*; do [ -e "$unit" ] && { echo yes; return 0; }; done; echo no; }

acs() {
  [ "$own_id" = 0 ] || { echo 'only root sees ACSCtl of the bridges'; return 1; }
  case $vendors in '') echo 'no card, no bridge that matters'; return 1 ;; esac
  has lspci || { echo 'lspci is not there'; return 1; }
  t 10 lspci -vvv 2>/dev/null | grep -c 'ACSCtl:.*SrcValid+'
  return 0
}

modules() {
  [ -r /proc/modules ] || { echo '/proc/modules is not there'; return 1; }
  while read -r module _; do
    case $module in
      nvidia|nvidia_uvm|nvidia_peermem|nv_peer_mem|nvidia_fs|nouveau|amdgpu|hycu|i915|xe|mtgpu|metax|mxgvm|bi_driver|iluvatar|kunlun|cambricon*|drv_*|ascend*|davinci*|ib_uverbs|mlx5_ib|rdma_ucm|irdma|bnxt_re|efa)
        echo "$module" ;;
    esac
  done </proc/modules
  return 0
}

nodes() {
  for node in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/kfd /dev/dri/renderD* /dev/davinci[0-9]* \
      /dev/davinci_manager /dev/devmm_svm /dev/hisi_hdc /dev/mthreads* /dev/mtgpu* /dev/cambricon_dev* /dev/mxcd* \
      /dev/iluvatar* /dev/xpu[0-9]* /dev/infiniband/uverbs*; do
    [ -e "$node" ] || continue
    if [ -r "$node" ] && [ -w "$node" ]; then echo "$node yes"; else echo "$node no $(stat -c %G "$node" 2>/dev/null)"; fi
  done
  return 0
}

updates() {
  if [ -e /var/run/reboot-required ]; then echo reboot=yes; else echo reboot=no; fi
  for folder in /lib/modules/*; do
    [ -d "$folder/kernel" ] && echo "kernel=${folder##*/}"
  done
  if [ -d /etc/apt/apt.conf.d ]; then
    grep -hsE '^ *APT::Periodic::Unattended-Upgrade +"' /etc/apt/apt.conf.d/* || echo automatic=0
  fi
  case $vendors in *0x10de*|*0x1002*) ;; *) return 0 ;; esac
  if command -v dpkg-query >/dev/null; then
    dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' 'libnvidia-compute-*' 'nvidia-kernel-*' \
      'nvidia-driver-*' 'cuda-*' 'rocm-*' 'amdgpu-dkms' 2>/dev/null | while read -r state name version; do
      case $state:$name in
        ii:libnvidia-compute-*|ii:nvidia-kernel-*|ii:nvidia-driver-*) echo "driver=$version" ;;
        hi:*) echo "held=$name" ;;
      esac
    done
    sed -n 's/^ *"\(\(lib\)\{0,1\}nvidia[^"]*\|cuda[^"]*\|rocm[^"]*\)";.*/held=\1/p' /etc/apt/apt.conf.d/*unattended-upgrades 2>/dev/null
  elif command -v rpm >/dev/null; then
    rpm -q --qf 'driver=%{VERSION}\n' nvidia-driver 2>/dev/null | grep '^driver=[0-9]'
  fi
  return 0
}

services() {
  command -v systemctl >/dev/null || { echo 'systemctl is not there'; return 1; }
  [ -d /run/systemd/system ] || return 0   # systemd is not the init: none of them is active
  set -- nvidia-persistenced nvidia-fabricmanager firewalld ufw nftables iptables docker containerd chrony chronyd systemd-timesyncd ntpd
  for state in $(t 5 systemctl is-active "$@" 2>/dev/null); do
    [ "$state" = active ] && echo "$1"
    shift
  done
  return 0
}

firewall() {
  [ "$own_id" = 0 ] || { echo 'only root sees the rules'; return 1; }
  command -v nft >/dev/null || command -v iptables >/dev/null || { echo 'neither nft nor iptables is there'; return 1; }
  if has nft; then rules=$(t 5 nft list ruleset 2>/dev/null); else rules=$(t 5 iptables -S 2>/dev/null); fi
  [ -n "$rules" ] && printf '%s\n' "$rules" |
    awk '{sub(/^[ \t]*/, "")} / (drop|reject)|policy drop|-j (DROP|REJECT)|^-P (INPUT|FORWARD) DROP/ && !seen[$0]++ && n++ < 20'
  return 0
}

fabric_manager() {
  command -v nv-fabricmanager >/dev/null || { echo none; return 0; }
  t 5 nv-fabricmanager --version
}

found_tools() {
  for tool in gcc g++ ninja nvcc ptxas numactl iperf3 docker podman nvidia-ctk ethtool smartctl; do
    command -v "$tool" >/dev/null && echo "$tool"
  done
  return 0
}

cuda_compat() {
  case $vendors in *0x10de*) ;; *) has nvidia-smi || return 0 ;; esac
  grep -lsE '/compat' /etc/ld.so.conf.d/*.conf
  case ${LD_LIBRARY_PATH-} in */compat*) echo LD_LIBRARY_PATH ;; esac
  return 0
}

interfaces() {
  [ -d /sys/class/net ] || { echo '/sys/class/net is not there'; return 1; }
  for net in /sys/class/net/*; do
    [ -e "$net/operstate" ] || continue
    kind= driver= pci= numa= speed= duplex= mtu= state= errors=0 drops=0 changes=
    first "$net/type"; [ "$line" = 772 ] && kind=loopback
    [ -d "$net/bonding" ] && kind=bond
    [ -d "$net/bridge" ] && kind=bridge
    [ -e "$net/tun_flags" ] && kind=tun
    if [ -z "$kind" ] && [ -r "$net/uevent" ]; then
      while read -r line; do case $line in DEVTYPE=*) kind=${line#DEVTYPE=} ;; esac; done <"$net/uevent"
    fi
    if [ -e "$net/device/driver" ]; then
      driver=$(cd -P "$net/device/driver" && printf %s "${PWD##*/}")
      pci=$(cd -P "$net/device" && printf %s "${PWD##*/}")
      first "$net/device/numa_node" && numa=$line
    fi
    first "$net/mtu" && mtu=$line
    first "$net/operstate" && state=$line
    if [ "$state" = up ]; then
      first "$net/speed" 2>/dev/null && speed=$line
      first "$net/duplex" 2>/dev/null && duplex=$line
    fi
    first "$net/carrier_changes" 2>/dev/null && changes=$line
    for counter in rx_errors tx_errors; do first "$net/statistics/$counter" && errors=$((errors + line)); done
    for counter in rx_dropped tx_dropped; do first "$net/statistics/$counter" && drops=$((drops + line)); done
    echo "interface name=${net##*/} kind=$kind driver=$driver pci=$pci numa=$numa state=$state mtu=$mtu speed=$speed duplex=$duplex errors=$errors drops=$drops changes=$changes"
  done
  command -v ip >/dev/null || { echo 'address unknown: ip is not there'; return 0; }
  ip -o addr show 2>/dev/null
  return 0
}

fabric() {
  tab=$(printf '\t')
  for port in /sys/class/infiniband/*/ports/*; do
    [ -r "$port/state" ] || continue
    number=${port##*/} adapter=${port%/ports/*}
    device=${adapter##*/}
    text="port${tab}device=$device${tab}port=$number"
    for pair in state:state phys_state:physical rate:rate link_layer:layer counters/symbol_error:symbol \
        counters/port_rcv_errors:receive counters/port_xmit_discards:discard counters/link_downed:downs; do
      first "$port/${pair%:*}" 2>/dev/null && text="$text${tab}${pair#*:}=$line"
    done
    first "$adapter/fw_ver" && text="$text${tab}firmware=$line"
    first "$adapter/hca_type" && text="$text${tab}model=$line"
    printf '%s\n' "$text" | sed 's/^port/port /'
    index=0
    while [ $index -lt 32 ] && first "$port/gids/$index" 2>/dev/null; do
      case $line in
        0000:0000:0000:0000:0000:ffff:*) gid=$line; first "$port/gid_attrs/types/$index" 2>/dev/null && echo "gid $device $number $index $gid $line" ;;
      esac
      index=$((index + 1))
    done
  done
  return 0
}

host_name() {
  echo "name=$own_name"
  command -v getent >/dev/null || return 0
  t 5 getent ahosts "$own_name"
  return 0
}

no_proxy_covers() {
  list=,${no_proxy-}${NO_PROXY+,$NO_PROXY},
  for name in localhost 127.0.0.1 '*'; do
    case $list in *,"$name",*) echo "$name" ;; esac
  done
  return 0
}

stuck() {   # who slept or was dead at first, and of these who still is; the name as it was
  while read -r kind pid state name; do
    [ "$kind" = first ] || continue
    echo "first $pid $state $name"
    first "/proc/$pid/stat" || continue
    line=${line##*") "}
    echo "again $pid ${line%% *} $name"
  done <<END_OF_SEEN
$seen
END_OF_SEEN
  echo again
}

segments() {
  mapped= looked=
  for file in /dev/shm/nccl-* /dev/shm/vllm* /dev/shm/psm_* /dev/shm/sgl* /dev/shm/torch_* /dev/shm/sem.mp-*; do
    [ -f "$file" ] || continue
    [ -n "$looked" ] || mapped=$(grep -hoE '/dev/shm/[^ ]+' /proc/[0-9]*/maps 2>/dev/null | sort -u)
    looked=yes
    held=no
    [ -O "$file" ] || [ "$own_id" = 0 ] || held='?'
    case "
$mapped
" in *"
$file
"*) held=yes ;; esac
    echo "$(stat -c '%s %u' "$file" 2>/dev/null || echo '0 0') $held ${file##*/}"
  done
  return 0
}

pointers() {
  [ -d "$model" ] || return 0
  find "$model/" -type f -size -16 \( -name '*.safetensors' -o -name '*.bin' -o -name '*.gguf' -o -name 'tokenizer*' \) \
    -exec grep -lE '^(version https://git-lfs|<!DOCTYPE|<html|<HTML)' {} + 2>/dev/null | sed 's#.*/##'
  return 0
}

drives() {
  for drive in /sys/class/nvme/nvme*; do
    [ -e "$drive" ] || continue
    first "$drive/state" 2>/dev/null || line=-
    state=$line
    first "$drive/model" 2>/dev/null || line=-
    echo "${drive##*/} $state $line"
  done
  return 0
}

drive_wear() {
  [ "$own_id" = 0 ] || { echo "only root reads a drive's own health log"; return 1; }
  command -v smartctl >/dev/null || { echo 'smartctl is not there'; return 1; }
  for drive in /dev/nvme[0-9]n1; do
    [ -e "$drive" ] && t 5 smartctl -H -A "$drive" 2>/dev/null | sed -n "s#^\(Critical Warning\|Percentage Used\): *#${drive##*/} \1: #p"
  done
  return 0
}

exposed() {   # names of processes whose arguments hold a key or token; the arguments stay here
  for file in $(grep -lzE '^--(api-key|hf-token|token|password|secret)(=.+)?$|^hf_[A-Za-z0-9]{30,}$|^sk-[A-Za-z0-9_-]{20,}$' /proc/[0-9]*/cmdline 2>/dev/null); do
    pid=${file#/proc/}; pid=${pid%/cmdline}
    first "/proc/$pid/comm" || continue
    name=$line
    if grep -qsF "$state_root/$service/" "$file"; then whose=ours; else whose=other; fi
    echo "$whose $name (pid $pid)"
  done
  return 0
}

engines() {
  while read -r kind pid _ name; do
    [ "$kind" = engine ] || continue
    if grep -qsF "$state_root/$service/" "/proc/$pid/cmdline"; then whose=ours; else whose=other; fi
    echo "$whose $name (pid $pid)"
  done <<END_OF_SEEN
$seen
END_OF_SEEN
  return 0
}

sshd() {   # a readable configuration is read with the other files
  [ -e /etc/ssh/sshd_config ] || { echo '#tool no sshd_config'; return 0; }
  echo 'only root reads sshd_config here'
  return 1
}

encrypted() {   # the source of the model store's disk, from the rows of df
  source=$PROBE_SIZES
  for row in header state_root log; do source=${source#*"$newline"}; done
  source=${source%%"$newline"*} source=${source%% *}
  case $source in
    /dev/mapper/*|/dev/dm-*) ;;
    /dev/*) echo no; return 0 ;;
    *) echo "$source is no block device of this host"; return 1 ;;
  esac
  for mapped in /sys/block/dm-*/dm; do
    first "$mapped/name" || continue
    [ "$source" = "/dev/mapper/$line" ] || continue
    first "$mapped/uuid"
    case $line in CRYPT-*) echo yes ;; *) echo no ;; esac
    return 0
  done
  echo no
}

numa_nodes() { count=0; for node in /sys/devices/system/node/node[0-9]*; do [ -d "$node" ] && count=$((count + 1)); done; echo "$count"; }

host_sections() {
  section kernel-log 'dmesg' kernel_log
  section kernel-arguments /proc/cmdline kernel_arguments
  section iommu /sys/class/iommu iommu
  section acs 'lspci -vvv' acs
  section modules /proc/modules modules
  section device-nodes /dev nodes
  section updates '/var/run/reboot-required, dpkg' updates
  section services 'systemctl is-active' services
  section firewall 'nft list ruleset' firewall
  section fabric-manager 'nv-fabricmanager --version' fabric_manager
  section tools 'command -v' found_tools
  section cuda-compat /etc/ld.so.conf.d cuda_compat
  section numa /sys/devices/system/node numa_nodes
  section interfaces '/sys/class/net, ip addr' interfaces
  section fabric /sys/class/infiniband fabric
  section hostname 'getent ahosts' host_name
  section no-proxy 'shell' no_proxy_covers
  section time-zone 'date +%z' echo "$zone"
  section segments '/dev/shm, /proc/PID/maps' segments
  section pointers 'find, grep' pointers
  section drives /sys/class/nvme drives
  section drive-wear 'smartctl -H -A' drive_wear
  section exposed /proc/PID/cmdline exposed
  section engines /proc/PID/comm engines
  [ -r /etc/ssh/sshd_config ] || section sshd /etc/ssh/sshd_config sshd
  section encrypted /sys/block encrypted
}
