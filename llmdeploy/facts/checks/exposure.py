"""Checks of secrets, access and engines: what is exposed, left over or set behind one's back."""

from llmdeploy.facts.check import Check, Outcome, Question, by_need, failed, passed, skipped, warned
from llmdeploy.facts.checks.words import listed

DANGEROUS = {
    "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "VLLM_TORCH_PROFILER_DIR", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}  # fmt: skip
"""Source: check catalogue `sec.danger.flags`, vLLM 0.33 envs.py."""
COMMUNICATION = ("NCCL_", "RCCL_", "HCCL_", "GLOO_", "VLLM_", "SGLANG_", "PYTORCH_", "ROCR_",
                 "HIP_", "ASCEND_")  # fmt: skip
WHEELS = {"vllm": (2, 28), "sglang": (2, 34)}
"""glibc of the engines' wheels. Source: wheel tags of vLLM 0.33 and SGLang 0.5.23."""
PYTHONS = {"vllm": ((3, 10), (3, 15)), "sglang": ((3, 10), (3, 15))}
"""First that works, and first that does not. Source: `requires-python` of the same."""
BAD_NCCL = (2, 27, 5)
"""Older ones write out of bounds in large bf16 collectives. Source: check catalogue
`rt.nccl.version`."""
CLUSTERS = ("raylet", "gcs_server")


def secrets(question: Question) -> Outcome:
    needed = "no key or token in a process's arguments"
    found = question.facts.exposed_secrets
    if found is None:
        return question.unknown("exposed_secrets", needed)
    if not found:
        return passed("none seen", needed)
    fix = "give it by a file with mode 0600 or an environment file; change the key"
    ours = [word.removeprefix("ours ") for word in found if word.startswith("ours ")]
    others = [word.removeprefix("other ") for word in found if not word.startswith("ours ")]
    said = f"everyone on the host can read one of {listed(ours or others)}"
    return failed(said, needed, fix=fix) if ours else warned(said, needed, fix=fix)


def at_rest(question: Question) -> Outcome:
    needed = "known: whether the store's disk is encrypted"
    if not question.facts.known("store_encrypted"):
        return question.unknown("store_encrypted", needed)
    return passed("encrypted" if question.facts.store_encrypted else "not encrypted", needed)


def ssh(question: Question) -> Outcome:
    needed = "an SSH server that takes keys only, and root by key or not at all"
    server = question.facts.ssh_server
    if server is None:
        return question.unknown("ssh_server", needed)
    bad = []
    if server.root_login == "yes":
        bad.append("PermitRootLogin yes")
    if server.password_authentication == "yes":
        bad.append("PasswordAuthentication yes")
    if not bad:
        return passed("keys only, as far as it is set", needed)
    fix = "set PasswordAuthentication no and PermitRootLogin prohibit-password, reload sshd"
    return warned(", ".join(bad), needed, fix=fix)


def switches(question: Question) -> Outcome:
    needed = "no dangerous engine switch in the environment"
    names = question.facts.environment_names
    if names is None:
        return question.unknown("environment_names", needed)
    bad = [name for name in names if name in DANGEROUS]
    if not bad:
        return passed("none", needed)
    return warned(f"set: {listed(bad)}", needed, fix=f"unset {' '.join(bad)}")


def communication(question: Question) -> Outcome:
    needed = "no library setting from outside: the launch sets what the plan says"
    names = question.facts.environment_names
    if names is None:
        return question.unknown("environment_names", needed)
    bad = [n for n in names if n.startswith(COMMUNICATION) and n not in DANGEROUS]
    if not bad:
        return passed("none", needed)
    fix = f"unset {' '.join(bad)}, or set them in the service for all hosts alike"
    return warned(f"set: {listed(bad)}", needed, fix=fix)


def wheel(question: Question) -> Outcome:
    facts, engine = question.facts, question.engine
    needed = "a glibc and Python that the engine's wheel takes"
    if engine not in WHEELS:
        return skipped("the embedded engine has checks of its own", needed)
    least, pythons = WHEELS[engine], PYTHONS[engine]
    shown = ".".join(map(str, least))
    needed = f"glibc {shown} and Python {_dotted(pythons[0])} to below {_dotted(pythons[1])}"
    if facts.glibc is None or facts.python_version is None:
        return question.unknown("glibc" if facts.glibc is None else "python_version", needed)
    found = f"glibc {facts.glibc}, Python {facts.python_version}"
    glibc = tuple(int(part) for part in facts.glibc.split(".")[:2])
    version = tuple(int(part) for part in facts.python_version.split(".")[:2])
    if glibc < least:
        return failed(found, needed, fix=f"use a distribution with glibc {shown}, or a container")
    if not pythons[0] <= version < pythons[1]:
        return failed(found, needed, fix="name another Python in cluster.yaml (hosts/python)")
    return passed(found, needed)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def nccl(question: Question) -> Outcome:
    needed = f"NCCL {_dotted(BAD_NCCL)} or newer where cards talk to each other"
    facts = question.facts
    if not question.torch_uses_cards or not question.cards_of("nvidia"):
        return skipped("torch uses no NVIDIA card", needed)
    if not facts.known("nccl_version"):
        return question.unknown("nccl_version", needed)
    if facts.nccl_version is None:
        return skipped("torch has no NCCL", needed)
    version = tuple(int(part) for part in facts.nccl_version.split(".")[:3])
    if version >= BAD_NCCL or question.tensor_parallel == 1:
        return passed(facts.nccl_version, needed)
    python = facts.asked.python
    fix = f"{python} -m pip install 'nvidia-nccl-cu12>={_dotted(BAD_NCCL)}'"
    return warned(facts.nccl_version, needed, fix=fix)


def leftovers(question: Question) -> Outcome:
    needed = "no other engine, and no cluster that this one could join by mistake"
    found = question.facts.engine_processes
    if found is None:
        return question.unknown("engine_processes", needed)
    others = [word.removeprefix("other ") for word in found if word.startswith("other ")]
    if not others:
        return passed(f"{len(found)} of this service" if found else "none", needed)
    fix = "see whose they are (ps -o user,pid,args -p PID); stop them or choose another host"
    cluster = any(word.startswith(CLUSTERS) for word in others)
    if cluster and question.engine in WHEELS:
        return by_need(question, listed(others), needed, fix=fix)
    return warned(listed(others), needed, fix=fix)


_NAMES = ("environment_names",)
CHECKS = (
    Check("sec.secrets.argv", "security", "no shown secret", secrets, ("exposed_secrets",)),
    Check("sec.weights.atrest", "security", "known encryption", at_rest, ("store_encrypted",)),
    Check("sec.ssh", "security", "keys only", ssh, ("ssh_server",)),
    Check("sec.danger.flags", "security", "no dangerous switch", switches, _NAMES),
    Check("rt.env.libraries", "runtime", "no outside setting", communication, _NAMES),
    Check("rt.engine.wheel", "runtime", "a host for the wheel", wheel,
          ("glibc", "python_version")),
    Check("rt.nccl.version", "runtime", "a sound NCCL", nccl,
          ("accelerators", "nccl_version", "torch_cuda_devices")),
    Check("rt.stale.cluster", "runtime", "no other engine", leftovers, ("engine_processes",)),
)  # fmt: skip
