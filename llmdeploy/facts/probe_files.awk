# What files alone tell, in one process; a part of probe.sh, run as
#   PROBE_FOLDER=… PROBE_DISKS=… awk -v mark=MARK -v at=TIME PROGRAM FILE…
# FILEs are the folders /proc/PID and sshd's configuration. Prints sections as probe.sh does. To stderr go lines
# `first PID STATE NAME` of processes that sleep or are dead, and `engine PID - NAME` of engines' processes.
# POSIX awk: mawk, gawk and busybox run it; a file that is not there ends none of them under `getline`.

function begin(name, tool) { print mark "begin " name " " at " " tool }
function end(code) { print ""; print mark "end " code }

function show(file, pattern,    line, got, rows) {   # how many lines match; -1: it cannot be read
  rows = 0
  while ((got = (getline line < file)) > 0) if (line ~ pattern) { print line; rows++ }
  close(file)
  return got < 0 ? -1 : rows
}

function plain(name, file, pattern,    rows) {
  begin(name, file)
  rows = show(file, pattern)
  if (rows < 0) print file " is not there"
  end(rows > 0 ? 0 : 1)
}

function processor(    line, file) {
  file = "/proc/cpuinfo"
  begin("cpuinfo", file)
  while ((getline line < file) > 0) {
    if (line ~ /^(model name|flags|Features)/) { if (!seen[line]++) print line }
    else if (line ~ /^(processor|physical id|core id)/) print line
  }
  close(file)
  end(0)
}

function level(folder,    file, i, line) {
  for (i = 1; i <= limits; i++) {
    file = folder "/" limit[i]
    if ((getline line < file) > 0) print folder " " limit[i] " " line
    close(file)
  }
  file = folder "/memory.stat"
  while ((getline line < file) > 0)
    if (sub(/^(total_)?inactive_file /, "inactive_file ", line)) print folder " " line
  close(file)
}

function levels(root, folder) {
  for (; folder != "" && folder != "/"; sub(/\/[^\/]*$/, "", folder)) level(root folder)
  level(root)
}

function control_groups(    file, got, line, part, controllers) {
  begin("cgroup", "/sys/fs/cgroup")
  limits = split("memory.max memory.current cpu.max memory.limit_in_bytes memory.usage_in_bytes " \
    "cpu.cfs_quota_us cpu.cfs_period_us", limit, " ")
  file = "/proc/self/cgroup"
  while ((got = (getline line < file)) > 0) {
    split(line, part, ":")
    controllers = "," part[2] ","
    if (controllers ~ /,memory,/) levels("/sys/fs/cgroup/memory", part[3])
    else if (controllers ~ /,cpu,/) { levels("/sys/fs/cgroup/cpu", part[3]); levels("/sys/fs/cgroup/cpu,cpuacct", part[3]) }
    else if (controllers == ",,") { levels("/sys/fs/cgroup", part[3]); levels("/sys/fs/cgroup/unified", part[3]) }
  }
  close(file)
  if (got < 0) print file " is not there"
  end(got < 0)
}

function addresses(    file, line, got, part, address, known) {
  begin("addresses", "/proc/net/fib_trie")
  file = "/proc/net/fib_trie"
  while ((got = (getline line < file)) > 0) {
    split(line, part, " ")
    if (line ~ /\|--/) address = part[2]
    else if (line ~ /host LOCAL/ && !known[address]++) print address
  }
  close(file)
  if (got < 0) print file " is not there"
  file = "/proc/net/if_inet6"
  while ((getline line < file) > 0) { split(line, part, " "); print part[1] }
  close(file)
  end(got < 0)
}

function port_rules(    line, file) {
  begin("port-rules", "/proc/sys/net/ipv4")
  file = "/proc/sys/net/ipv4/ip_local_port_range"
  if ((getline line < file) > 0) print "range=" line
  close(file)
  file = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
  if ((getline line < file) > 0) print "unprivileged=" line
  close(file)
  end(0)
}

function environment(    name) {   # names only
  begin("environment", "shell")
  for (name in ENVIRON)
    if (name ~ /^(LD_PRELOAD|LD_LIBRARY_PATH|PYTHON(PATH|HOME|STARTUP|OPTIMIZE)|CUDA_(VISIBLE_DEVICES|LAUNCH_BLOCKING)|HSA_OVERRIDE_GFX_VERSION|(OMP|MKL)_NUM_THREADS|(ROCR|HIP|ASCEND_RT)_VISIBLE_DEVICES|TRANSFORMERS_OFFLINE|HF_HOME|HTTPS?_PROXY|https?_proxy|(NCCL|RCCL|HCCL|GLOO|VLLM|SGLANG|PYTORCH)_[A-Za-z0-9_]*)$/)
      print name
  end(0)
}

# PROBE_DISKS: for each disk the lines purpose, path, nearest folder that exists, `yes` or `no` (writable).
# PROBE_SIZES, PROBE_INODES: `df -Pk` and `df -Pi` of all, PROBE_RIGHTS: `stat`; an empty row where none answered.
function disks(    file, line, part, word, count, i, n, mount, mounted, row, size, sizes, inode, inodes, right, rights) {
  file = "/proc/mounts"
  while ((getline line < file) > 0) { split(line, part, " "); mounted[part[2]] = line }
  close(file)
  count = int(split(ENVIRON["PROBE_DISKS"], word, "\n") / 4)
  sizes = split(ENVIRON["PROBE_SIZES"], size, "\n")
  inodes = split(ENVIRON["PROBE_INODES"], inode, "\n")
  rights = split(ENVIRON["PROBE_RIGHTS"], right, "\n")
  for (n = 1; n <= count; n++) {
    i = 4 * n - 3
    if (word[i] == "cache") begin("caches", "df, /proc/mounts, stat")
    else if (word[i] != "temporary") begin("disk-" word[i], "df, /proc/mounts, stat")
    if (word[i] ~ /^(cache|temporary)$/) print "purpose=" word[i]
    row = mount = sizes == count + 1 ? size[n + 1] : ""
    if (row == "") print "df did not answer for " word[i + 2]
    else {
      sub(/^.*[%-] +\//, "/", mount)
      print "path=" word[i + 1]
      print "nearest=" word[i + 2]
      print "df=" row
      print "inodes=" (inodes == count + 1 ? inode[n + 1] : "")
      print "mount=" mounted[mount]
      print "stat=" (rights >= count ? right[n] : "")
      print "writable=" word[i + 3]
    }
    if (word[i] != "cache") end(row == "")
  }
}

function processes(    i, line, got, file, pid, rest, name, state, at_name) {
  for (i = 1; i < ARGC; i++) {
    file = ARGV[i]
    if (substr(file, 1, 6) != "/proc/") continue
    file = file "/stat"
    got = (getline line < file)
    close(file)
    if (got <= 0) continue   # it ended meanwhile
    if (line !~ /[)] [DZ] |[(](VLLM::|vllm|sglang|sgl_|raylet|gcs_|mindie|lmdepl|triton|ollama|llama-)/) continue
    rest = line
    sub(/^.*\) /, "", rest)
    at_name = index(line, "(") + 1
    name = substr(line, at_name, length(line) - length(rest) - at_name - 1)
    state = substr(rest, 1, 1)
    pid = line + 0
    if (state == "D" || state == "Z") print "first " pid " " state " " name > "/dev/stderr"
    if (name ~ /^(VLLM::|vllm|sglang|sgl_|raylet|gcs_server|mindie|lmdeploy|tritonserver|ollama|llama-server)/)
      print "engine " pid " - " name > "/dev/stderr"
  }
}

function ssh_server(    i) {
  for (i = 1; i < ARGC; i++) if (ARGV[i] ~ /^\/etc\/ssh\//)
    show(ARGV[i], "^[ \t]*([Pp]assword[Aa]uthentication|[Pp]ermit[Rr]oot[Ll]ogin|[Mm]atch)[ \t]")
}

BEGIN {
  plain("load", "/proc/loadavg", "")
  plain("os-release", "/etc/os-release", "")
  processor()
  plain("affinity", "/proc/self/status", "^Cpus_allowed_list")
  plain("meminfo", "/proc/meminfo", "")
  plain("vmstat", "/proc/vmstat", "^oom_kill ")
  plain("limits", "/proc/self/limits", "")
  plain("file-max", "/proc/sys/fs/file-max", "")
  control_groups()
  disks()
  addresses()
  port_rules()
  environment()
  if (ARGV[ARGC - 1] == "/etc/ssh/sshd_config") { begin("sshd", "/etc/ssh/sshd_config"); ssh_server(); end(0) }
  processes()
}
