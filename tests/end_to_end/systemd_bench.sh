# Starts a private user manager of systemd and runs a command under it:
#
#   unshare --mount --propagation private sh systemd_bench.sh FOLDER COMMAND…
#
# FOLDER becomes the home and holds the manager's runtime directory. Exits 77 where no manager comes up.
folder=$1; shift
mkdir -p "$folder/run" && chmod 700 "$folder/run"
mount -t tmpfs none /run/systemd && mkdir -p /run/systemd/system || exit 77
export HOME="$folder" XDG_RUNTIME_DIR="$folder/run"
/lib/systemd/systemd --user >"$folder/manager.log" 2>&1 &
manager=$!
tries=0
until state=$(systemctl --user is-system-running 2>/dev/null); [ "$state" = running ] || [ "$state" = degraded ]; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { kill -9 $manager; exit 77; }
  sleep 0.1
done
"$@"
code=$?
kill $manager; wait $manager 2>/dev/null
exit $code
