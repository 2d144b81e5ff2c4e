"""The store's model that a plan for this machine is made of."""

from llmdeploy import store
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.store import Model


def stored_model(root: str, name: str, *, service: str) -> Model:
    """The model of that id in the store; InputError that also names the way without files where
    the id looks like one of Hugging Face."""
    try:
        model = store.load(f"{root}/{name}", LocalShell())
    except InputError as missing:
        if "/" not in name:
            raise
        raise InputError(
            str(missing),
            fix=f"{missing.fix}; or plan by its shape alone, without files or hosts:"
            f" llmdeploy plan {service} --inventory cluster.yaml (with devices declared)",
        ) from missing
    if model.manifest.unfit:
        raise InputError(
            f"{model.folder}: {model.manifest.unfit}: the embedded engine cannot serve it",
            fix="choose an unquantised model of such an architecture (model.quantization int8 or"
            f" nf4 shrinks it), or an engine that can: llmdeploy plan {service} --inventory"
            " cluster.yaml with engine.kind vllm or sglang",
        )
    return model
