"""Each stage may use the stages on its left; only cli may pick real edges."""

import ast
import pathlib

PKG = pathlib.Path(__file__).parents[1] / "llmdeploy"
FLOOR = {"errors", "units", "document", "model", "edge"}  # edge: its Protocols only, see below
FLOW = [
    "service", "inventory", "catalog", "facts", "store", "backends", "estimate", "simulate", "plan",
    "release", "gateway", "observe", "verdict", "rollout", "doctor",
]  # fmt: skip
ALLOWED = {stage: FLOOR | set(FLOW[: i + 1]) for i, stage in enumerate(FLOW)}
ALLOWED |= {
    "__main__": {"cli"},
    "cli": {*FLOOR, *FLOW, "cli"},
    "edge": FLOOR,
    "engine": {"engine", "errors"},
    "onhost": {"onhost"},
    "model": {"errors", "units", "document", "model"},
    "document": {"errors", "units"},
    "units": {"errors"},
}


def imported(path):
    package = ["llmdeploy", *path.relative_to(PKG).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, node.module] if node.module else base
            yield from (".".join([*base, alias.name]) for alias in node.names)


def test_imports_flow_one_way():
    wrong = []
    for path in sorted(PKG.rglob("*.py")):
        stage = path.relative_to(PKG).parts[0].removesuffix(".py")
        for name in sorted(n for n in imported(path) if n.startswith("llmdeploy.")):
            target, *rest = name.split(".")[1:]
            real_edge = target == "edge" and rest and (PKG / "edge" / f"{rest[0]}.py").exists()
            may_pick_edges = stage in ("cli", "edge")
            if target not in ALLOWED.get(stage, set()) or (real_edge and not may_pick_edges):
                wrong.append(f"{path.relative_to(PKG.parent)} imports {name}")
    assert not wrong, "\n".join(wrong)
