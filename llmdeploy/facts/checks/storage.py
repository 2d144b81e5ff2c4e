"""Checks of disks and of the model that lies on them."""

import shlex

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.facts.storage import Disk
from llmdeploy.units import show_bytes, show_seconds

STATE_BYTES = 2**30
"""Journals, logs with rotation, access log and gateway files of one service."""
GOOD_STATE_BYTES = 5 * 2**30
INODES = 10_000
STORE_RATIO = 1.1
"""Source: check catalogue `sto.space`: a model is built beside its place, then renamed."""
EMPTY_STORE_BYTES = 2**30
LOADING_S = 60.0
"""Reading weights longer than this makes every start and every restart slow to see."""
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")
"""File systems where unix sockets do not work or locks of other hosts are seen late."""


COPIES_KV_HEADS = ("vllm", "sglang")
"""Engines that give a KV head to several processes where there are fewer heads than processes.
Source: vLLM 0.33 `get_num_kv_heads`, SGLang 0.5.23 `ModelConfig.get_num_kv_heads`."""


def state_space(question: Question) -> Outcome:
    needed = (
        f"{show_bytes(STATE_BYTES)} and {INODES} inodes free, better {show_bytes(GOOD_STATE_BYTES)}"
    )
    return _space(
        question,
        "state_root",
        STATE_BYTES,
        needed=needed,
        good_bytes=GOOD_STATE_BYTES,
    )


def log_space(question: Question) -> Outcome:
    needed = f"{show_bytes(STATE_BYTES)} and {INODES} inodes free"
    return _space(question, "log", STATE_BYTES, needed=needed, good_bytes=STATE_BYTES)


def store_space(question: Question) -> Outcome:
    model = question.model
    needed_bytes = EMPTY_STORE_BYTES
    if model is not None and model.weights_bytes is not None:
        needed_bytes = round(model.weights_bytes * STORE_RATIO)
    needed = f"{show_bytes(needed_bytes)} and {INODES} inodes free, for a second version"
    outcome = _space(question, "model_store", needed_bytes, needed=needed, good_bytes=needed_bytes)
    if outcome.fix and model is not None:  # what is needed now is there already
        return warned(outcome.found, needed, fix=outcome.fix)
    return outcome


def _space(
    question: Question, purpose: str, least_bytes: int, *, needed: str, good_bytes: int
) -> Outcome:
    disk = question.disk(purpose)
    if disk is None or disk.free_bytes is None:
        return question.unknown("disks", needed)
    inodes = "" if disk.free_inodes is None else f", {disk.free_inodes} inodes"
    found = f"{show_bytes(disk.free_bytes)}{inodes} free on {disk.mount or disk.nearest}"
    fix = f"free space on {disk.mount or disk.nearest}, or set {_key(purpose)} to another disk"
    few_inodes = disk.free_inodes is not None and disk.free_inodes < INODES
    if disk.free_bytes < least_bytes or few_inodes:
        return failed(found, needed, fix=fix)
    return warned(found, needed, fix=fix) if disk.free_bytes < good_bytes else passed(found, needed)


def _key(purpose: str) -> str:
    return (
        "model_store in cluster.yaml" if purpose == "model_store" else "state_root in cluster.yaml"
    )


def writable(question: Question) -> Outcome:
    needed = "a folder this user can write to"
    disk = question.disk("state_root")
    if disk is None:
        return question.unknown("disks", needed)
    found = f"{disk.nearest}{' (read-only mount)' if disk.read_only else ''}"
    if disk.writable and not disk.read_only:
        return passed(found, needed)
    fix = f"chown {question.facts.user or 'USER'} {disk.nearest}, or set {_key('state_root')}"
    return failed(f"{found} is not writable", needed, fix=fix)


def filesystem(question: Question) -> Outcome:
    needed = "a local file system: the state has unix sockets and a lock in it"
    disk = question.disk("state_root")
    if disk is None or disk.filesystem is None:
        return question.unknown("disks", needed)
    if disk.filesystem not in NETWORK:
        return passed(disk.filesystem, needed)
    return failed(
        f"{disk.filesystem} on {disk.mount}",
        needed,
        fix=f"set {_key('state_root')} to a local disk",
    )


def read_speed(question: Question) -> Outcome:
    needed = f"the weights read in {show_seconds(LOADING_S)}"
    facts, model = question.facts, question.model
    if not facts.asked.measured:
        return skipped("not measured: --quick", needed)
    if model is None or model.weights_bytes is None:
        return question.without_model(needed)
    if facts.disk_read_bytes_per_s is None:
        return question.unknown("disk_read_bytes_per_s", needed)
    duration_s = model.weights_bytes / facts.disk_read_bytes_per_s
    found = f"{show_seconds(duration_s)} at {show_bytes(facts.disk_read_bytes_per_s)}/s"
    if duration_s <= LOADING_S:
        return passed(found, needed)
    return warned(found, needed, fix=f"move the store to a local SSD: {_key('model_store')}")


def model_present(question: Question) -> Outcome:
    facts, id = question.facts, question.service.model.id
    needed = f"the model {id} with its manifest"
    if facts.asked.model != id or facts.model is None:
        return question.without_model(needed)
    if facts.model.problem is None:
        return passed(facts.model.folder, needed)
    fix = (
        f"llmdeploy models add {id} --store {shlex.quote(question.inventory.model_store)}"
        " --package PACKAGE (or --gguf FILE, --folder DIR)"
    )
    return failed(f"{facts.model.folder}: {facts.model.problem}", needed, fix=fix)


def model_whole(question: Question) -> Outcome:
    model = question.model
    if model is None:
        return question.without_model("every file with the manifest's size")
    needed = f"{len(model.files)} files with the manifest's sizes"
    store = shlex.quote(question.inventory.model_store)
    remove = f"llmdeploy models remove {question.service.model.id} --store {store}"
    fix = f"{remove}, then add it again"
    for file in model.files:
        if file.found_bytes is None:
            return failed(f"{file.name} is missing", needed, fix=fix)
        if file.found_bytes != file.manifest_bytes:
            found = f"{file.name} has {file.found_bytes} bytes, not {file.manifest_bytes}"
            return failed(found, needed, fix=fix)
    return passed(f"{len(model.files)} files", needed)


def model_shape(question: Question) -> Outcome:
    engine = question.service.engine
    needed = f"a context of {engine.max_model_len} tokens (engine.max_model_len)"
    if question.model is None or question.model.shape is None:
        return question.without_model(needed)
    shape = question.model.shape
    found = f"{shape.max_positions} positions"
    if engine.max_model_len > shape.max_positions:
        return failed(found, needed, fix=f"set engine.max_model_len to {shape.max_positions}")
    return passed(found, needed)


def model_split(question: Question) -> Outcome:
    plan, parts = question.planned, question.tensor_parallel
    if parts == 1:
        return skipped("engine.tensor_parallel is not used", "heads that can be split")
    asked = "the plan's tensor parallelism" if plan else "engine.tensor_parallel"
    needed = f"heads that {parts} processes can share ({asked})"
    if plan is not None and plan.attention_heads and plan.kv_heads:
        heads, kv_heads = plan.attention_heads, plan.kv_heads
    elif question.model is None or question.model.shape is None:
        return question.without_model(needed)
    else:
        heads, kv_heads = question.model.shape.attention_heads, question.model.shape.kv_heads
    found = f"{heads} attention heads, {kv_heads} KV heads"
    copied = question.engine in COPIES_KV_HEADS

    def fits(number: int) -> bool:
        shared = kv_heads % number == 0 or (copied and number % kv_heads == 0)
        return heads % number == 0 and shared

    if fits(parts):
        return passed(found, needed)
    whole = max(number for number in range(1, parts) if fits(number))
    fix = f"set engine.tensor_parallel to {whole}"
    return failed(found, needed, fix=f"{fix} and plan again" if plan else fix)


def chat_template(question: Question) -> Outcome:
    needed = "a chat template: /v1/chat/completions is built on it"
    if question.model is None:
        return question.without_model(needed)
    if question.model.chat_template:
        return passed("there is one", needed)
    id = question.service.model.id
    fix = f"put the model's chat_template.jinja beside its tokenizer and add {id} again"
    return warned("none in the model's folder", needed, fix=fix)


def state_mode(question: Question) -> Outcome:
    needed = "a state folder that others cannot write to"
    disk = question.disk("state_root")
    if disk is None or disk.mode is None:
        return question.unknown("disks", needed)
    if disk.nearest != disk.path:
        return passed("it will be made, for this user alone", needed)
    return _mode(disk, disk.mode, needed)


def _mode(disk: Disk, mode: int, needed: str) -> Outcome:
    found = f"{disk.path} has mode {mode & 0o7777:04o}"
    fix = f"chmod go-w {disk.path}"
    if mode & 0o002:
        return failed(found, needed, fix=fix)
    return warned(found, needed, fix=fix) if mode & 0o020 else passed(found, needed)


def model_mode(question: Question) -> Outcome:
    needed = "weights that only their owner can change"
    model = question.model
    if model is None or model.mode is None:
        return question.without_model(needed)
    found = f"{model.folder} has mode {model.mode & 0o7777:04o}"
    if not model.mode & 0o022:
        return passed(found, needed)
    return warned(found, needed, fix=f"chmod -R go-w {model.folder}")


CHECKS = (
    Check("sto.space", "storage", "room for the state", state_space, ("disks",), gate=True),
    Check("sto.space.log", "storage", "room for logs", log_space, ("disks",), gate=True),
    Check("sto.space.store", "storage", "room in the model store", store_space, ("model", "disks")),
    Check(
        "sto.mount.health",
        "storage",
        "a writable state folder",
        writable,
        ("disks", "user"),
        gate=True,
    ),
    Check("sto.filesystem", "storage", "state on a local disk", filesystem, ("disks",), gate=True),
    Check(
        "sto.read.speed",
        "storage",
        "weights read in time",
        read_speed,
        ("model", "disk_read_bytes_per_s"),
    ),
    Check("sec.state.perm", "security", "a private state folder", state_mode, ("disks",)),
    Check("sec.weights.perm", "security", "weights nobody can swap", model_mode, ("model",)),
    Check(
        "sto.model.present", "model", "the model in the store", model_present, ("model",), gate=True
    ),
    Check("sto.model.index", "model", "all files whole", model_whole, ("model",), gate=True),
    Check("sto.model.config", "model", "a context long enough", model_shape, ("model",), gate=True),
    Check(
        "sto.model.split", "model", "heads that can be split", model_split, ("model",), gate=True
    ),
    Check("sto.tokenizer", "model", "a chat template", chat_template, ("model",)),
)
