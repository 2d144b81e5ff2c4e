"""Adding models: whole or not at all, and the second time a no-op."""

import json
import pathlib
import sys

import pytest

from llmdeploy import store as models
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, LlmDeployError, Refused
from llmdeploy.store.add import convert_argv
from llmdeploy.store.source import parse_packaged

from ..fakes import FakeClock
from .tiny_model import safetensors, tensor_shapes, write_model

CONVERTER = """#!/bin/sh
# stands for the host's Python: copies the model that lies beside the GGUF file
[ "$2" = llmdeploy.engine.convert ] || exit 9
cp "$(dirname "$4")"/model/* "$6"
"""


def add(
    tmp_path: pathlib.Path, wanted: models.Wanted, *, id="tiny", python=sys.executable, shell=None
) -> models.Added:
    return models.add(
        id,
        wanted,
        store=str(tmp_path / "store"),
        python=str(python),
        report=lambda step: None,
        shell=shell or LocalShell(),
        clock=FakeClock(),
    )


def from_folder(folder: pathlib.Path) -> models.Wanted:
    return models.Wanted(kind="folder", name=str(folder))


def program(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def gguf_beside_model(tmp_path: pathlib.Path) -> models.Wanted:
    write_model(tmp_path / "given" / "model")
    (tmp_path / "given" / "a.gguf").write_bytes(b"GGUF and so on")
    return models.Wanted(kind="gguf", name=str(tmp_path / "given" / "a.gguf"))


def left_in_store(tmp_path: pathlib.Path) -> list[str]:
    there = tmp_path / "store"
    return sorted(path.name for path in there.iterdir()) if there.exists() else []


def test_a_folder_is_copied_with_a_manifest_of_its_files(tmp_path):
    folder = write_model(tmp_path / "given")
    (folder / "README.md").write_text("not part of the model")
    (folder / "training_args.bin").write_bytes(b"a pickle beside the weights stays outside")
    added = add(tmp_path, from_folder(folder))
    names = [file.name for file in added.model.manifest.files]
    assert added.fresh
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(p.name for p in (tmp_path / "store" / "tiny").iterdir()) == [
        "config.json", "manifest.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    assert models.load(added.model.folder, LocalShell()) == added.model
    assert added.model.manifest.parameters == 2 * (576 + 8) + 32 * 8 + 8


def test_the_store_is_readable_by_its_owner_only(tmp_path):
    added = add(tmp_path, from_folder(write_model(tmp_path / "given")))
    assert pathlib.Path(added.model.folder).stat().st_mode & 0o077 == 0


def test_the_second_add_of_the_same_content_changes_nothing(tmp_path):
    wanted = from_folder(write_model(tmp_path / "given"))
    first, second = add(tmp_path, wanted), add(tmp_path, wanted)
    assert not second.fresh
    assert second.model == first.model
    assert left_in_store(tmp_path) == ["tiny"]


def test_the_same_model_has_the_same_digest_under_any_id_and_from_any_place(tmp_path):
    one = add(tmp_path, from_folder(write_model(tmp_path / "a")), id="one")
    two = add(tmp_path, from_folder(write_model(tmp_path / "b")), id="two")
    assert one.model.manifest.digest == two.model.manifest.digest
    assert one.model.manifest.id != two.model.manifest.id


def test_other_content_under_a_taken_id_is_refused_and_the_old_model_stays(tmp_path):
    first = add(tmp_path, from_folder(write_model(tmp_path / "a")))
    other = write_model(tmp_path / "b", max_position_embeddings=64)
    with pytest.raises(InputError, match=first.model.manifest.digest[:12]) as error:
        add(tmp_path, from_folder(other))
    assert "another id" in error.value.fix
    assert models.load(first.model.folder, LocalShell()) == first.model
    assert left_in_store(tmp_path) == ["tiny"]


def test_versions_of_a_model_lie_side_by_side(tmp_path):
    add(tmp_path, from_folder(write_model(tmp_path / "a")))
    other = write_model(tmp_path / "b", max_position_embeddings=64)
    with pytest.raises(InputError) as error:
        add(tmp_path, from_folder(other))
    assert "tiny@2" in error.value.fix
    assert add(tmp_path, from_folder(other), id="tiny@2").fresh
    assert models.ids(str(tmp_path / "store"), shell=LocalShell()) == ("tiny", "tiny@2")


def test_a_packed_checkpoint_of_another_engine_is_kept_with_its_method(tmp_path):
    folder = write_model(
        tmp_path / "given", quantization_config={"quant_method": "awq", "bits": 4, "group_size": 4}
    )
    shapes = tensor_shapes()
    (folder / "model.safetensors").write_bytes(safetensors(shapes, dtype="I8"))
    manifest = add(tmp_path, from_folder(folder)).model.manifest
    assert (manifest.quantization, manifest.dtype) == ("awq", "bfloat16")
    assert "found a awq checkpoint" in manifest.unfit
    assert manifest.shape.weight_format.method == "awq"
    assert manifest.parameters == manifest.shape.parameters.total


def test_a_model_of_an_architecture_unknown_here_is_kept_for_other_engines(tmp_path):
    folder = write_model(tmp_path / "given", architectures=["PhiForCausalLM"], model_type="phi")
    manifest = add(tmp_path, from_folder(folder)).model.manifest
    assert manifest.architecture == "PhiForCausalLM"
    assert "found PhiForCausalLM" in manifest.unfit


def test_a_packed_checkpoint_without_one_of_its_layers_is_refused(tmp_path):
    folder = write_model(tmp_path / "given", quantization_config={"quant_method": "fp8"})
    shapes = {n: s for n, s in tensor_shapes(layers=2).items() if ".layers.0." not in n}
    (folder / "model.safetensors").write_bytes(safetensors(shapes, dtype="I8"))
    with pytest.raises(InputError, match="without 0"):
        add(tmp_path, from_folder(folder))
    assert left_in_store(tmp_path) == []


def test_the_kinds_of_a_manifest_are_no_part_of_its_identity(tmp_path):
    manifest = add(tmp_path, from_folder(write_model(tmp_path / "given"))).model.manifest
    said = manifest.model_copy(update={"unfit": "x", "quantization": "y"})
    assert said.digest == manifest.digest


def test_adding_again_replaces_a_damaged_copy(tmp_path):
    wanted = from_folder(write_model(tmp_path / "given"))
    first = add(tmp_path, wanted)
    (pathlib.Path(first.model.folder) / "model.safetensors").write_bytes(b"cut")
    assert add(tmp_path, wanted).fresh
    findings = models.verify(first.model, full=True, shell=LocalShell())
    assert models.broken(findings) is None


def test_a_gguf_file_is_converted_by_the_hosts_python(tmp_path):
    wanted = gguf_beside_model(tmp_path)
    python = program(tmp_path / "python", CONVERTER)
    added = add(tmp_path, wanted, python=python)
    assert added.fresh
    assert added.model.manifest.source.kind == "gguf"
    unused = program(tmp_path / "python", "#!/bin/sh\nexit 1\n")
    assert not add(tmp_path, wanted, python=unused).fresh  # known by its hash, not built again


def test_the_converters_command_names_file_and_folder():
    assert convert_argv("/p/python", "a.gguf", "out") == [
        "/p/python", "-m", "llmdeploy.engine.convert", "--gguf", "a.gguf", "--out", "out",
    ]  # fmt: skip


def test_a_failed_conversion_gives_its_error_and_hint_and_leaves_nothing(tmp_path):
    said = 'echo half > "$6/config.json"; echo "error: no tensor" >&2; echo "hint: mend" >&2'
    python = program(tmp_path / "python", f"#!/bin/sh\n{said}\nexit 2\n")
    with pytest.raises(InputError, match="cannot be converted: no tensor") as error:
        add(tmp_path, gguf_beside_model(tmp_path), python=python)
    assert error.value.fix == "mend"
    assert left_in_store(tmp_path) == []


class InterruptedShell(LocalShell):
    """The user presses Ctrl-C while files are copied."""

    def run(self, argv, **kwargs):
        ended = super().run(argv, **kwargs)
        if argv[0] == "cp":
            raise KeyboardInterrupt
        return ended


def test_an_interrupted_add_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        add(tmp_path, from_folder(write_model(tmp_path / "given")), shell=InterruptedShell())
    assert left_in_store(tmp_path) == []


class FullDiskShell(LocalShell):
    """A host whose disk has 4 KiB left."""

    def run(self, argv, **kwargs):
        asked = ["echo", "/dev/sda 100 96 4 96% /"] if argv[0] == "df" else argv
        return super().run(asked, **kwargs)


def test_a_full_disk_is_refused_with_both_sizes_before_anything_is_copied(tmp_path):
    folder = write_model(tmp_path / "given")
    (folder / "tokenizer.json").write_text(json.dumps({"vocabulary": "x" * 9000}))
    with pytest.raises(Refused, match=r"4\.0 KiB free, needed 1\d\.\d KiB") as error:
        add(tmp_path, from_folder(folder), shell=FullDiskShell())
    assert "--store" in error.value.fix
    assert left_in_store(tmp_path) == []


def without(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def only_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (without("config.json"), "needed also config.json"),
        (without("tokenizer.json"), "needed also tokenizer.json"),
        (without("model.safetensors"), r"needed also \*.safetensors"),
        (only_pickle, "found pytorch_model.bin, needed .*a pickle can run code"),
        (write("model.safetensors", safetensors(tensor_shapes())[:-9]), "truncated"),
        (write("model.safetensors", LFS), "Git LFS pointer"),
        (write("tokenizer.json", LFS), "Git LFS pointer"),
        (write("config.json", b"{"), "cannot be read as JSON"),
        (write("config.json", b"[" * 200_000), "cannot be read as JSON"),
        (write("model.safetensors", safetensors(tensor_shapes(layers=1))), "num_hidden_layers"),
        (write("model.safetensors.index.json", b'{"weight_map": {"a": "2.safetensors"}}'), "shard"),
    ],
)
def test_a_damaged_model_is_refused_and_leaves_nothing(tmp_path, damage, words):
    folder = write_model(tmp_path / "given")
    damage(folder)
    with pytest.raises(InputError, match=words) as error:
        add(tmp_path, from_folder(folder))
    assert error.value.fix
    assert left_in_store(tmp_path) == []


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_source_that_is_not_there_is_refused(tmp_path, kind):
    with pytest.raises(InputError, match="no such f"):
        add(tmp_path, models.Wanted(kind=kind, name=str(tmp_path / "nowhere")))


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"<html>not found</html>")
    with pytest.raises(InputError, match="needed a GGUF file"):
        add(tmp_path, models.Wanted(kind="gguf", name=str(tmp_path / "a.gguf")))


def test_a_package_that_is_not_installed_is_refused_with_the_install_command(tmp_path):
    with pytest.raises(InputError, match="no such package") as error:
        add(tmp_path, models.Wanted(kind="package", name="llm-not-there"))
    assert error.value.fix == f"{sys.executable} -m pip install llm-not-there"


def test_the_one_gguf_file_of_a_package_is_found():
    answer = json.dumps({"version": "0.1.2", "files": ["/s/llm/a.gguf"]})
    assert parse_packaged(answer, package="llm") == ("/s/llm/a.gguf", "0.1.2")


@pytest.mark.parametrize("files", [[], ["a.gguf", "b.gguf"]])
def test_a_package_with_none_or_several_gguf_files_is_refused(files):
    answer = json.dumps({"version": "0.1.2", "files": files})
    with pytest.raises(InputError, match=f"found {len(files)} GGUF files"):
        parse_packaged(answer, package="llm")


@pytest.mark.parametrize("id", ["", "../up", "A", "a/b", ".hidden", "-x"])
def test_an_id_that_could_be_another_path_is_refused(tmp_path, id):
    with pytest.raises(LlmDeployError, match="model id"):
        add(tmp_path, from_folder(write_model(tmp_path / "given")), id=id)


@pytest.mark.parametrize("given", [{}, {"package": "a", "gguf": "b"}, {"gguf": "a", "folder": "b"}])
def test_one_source_must_be_named(given):
    none = {"package": None, "gguf": None, "folder": None}
    with pytest.raises(InputError, match=f"found {len(given)} of"):
        models.wanted(**none | given)


@pytest.mark.end_to_end
def test_the_real_package_gives_the_model_of_134_515_008_parameters(model_folder):
    manifest = models.load(str(model_folder), LocalShell()).manifest
    assert manifest.parameters == 134_515_008
    assert manifest.weights_bytes == 2 * 134_515_008
    # 30 layers x (q, o 576x576 each + k, v 192x576 each + gate, up, down 1536x576 each)
    assert manifest.matrix_parameters == 30 * (2 * 576**2 + 2 * 192 * 576 + 3 * 1536 * 576)
    assert manifest.embedding_parameters == 49152 * 576
    assert manifest.dtype == "bfloat16"
