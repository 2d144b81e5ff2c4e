"""Environments as cluster.yaml names them, and the folder of wheels that they are made of."""

import pathlib

import pytest

from llmdeploy.document import parse
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, Refused
from llmdeploy.inventory import Inventory
from llmdeploy.release.environments import Made, check_alike
from llmdeploy.release.wheels import read_wheels
from tests.onhost.wheel import write_wheel

CLUSTER = """
environments: [{name: cuda, requirements: [vllm==0.11.0]}]
hosts: [{name: a, environment: cuda}, {name: b, address: b, python: /opt/py/bin/python}]
"""


def inventory(text: str) -> Inventory:
    return parse(text, Inventory, place="cluster.yaml")


def test_the_python_of_a_host_is_its_environments() -> None:
    found = inventory(CLUSTER)
    store = "~/.local/share/llmdeploy/environments"
    assert found.python_of(found.hosts[0]) == f"{store}/cuda-1f10abf7ce50/bin/python"
    assert found.python_of(found.hosts[1]) == "/opt/py/bin/python"


def test_another_list_is_another_environment_in_another_order_it_is_not() -> None:
    titles = {
        words: inventory(f"environments: [{{name: e, requirements: [{words}]}}]").environments[0]
        for words in ("a==1, b==2", "b==2, a==1", "a==1, b==3")
    }
    assert len({environment.title for environment in titles.values()}) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environments: [{name: e, requirements: [vllm]}]", "found 'vllm', needed NAME==VERSION"),
        ("environments: [{name: e, requirements: ['vllm>=1']}]", "needed NAME==VERSION"),
        ("environments: [{name: e, requirements: ['--pre']}]", "needed NAME==VERSION"),
        ("environments: [{name: e, requirements: []}]", "environments/0/requirements"),
        ("hosts: [{environment: e}]", "found environment e of local, needed one of"),
        (
            "environments: [{name: e, requirements: [a==1]}, {name: e, requirements: [a==2]}]",
            "found environments named e twice, needed distinct names",
        ),
    ],
)
def test_what_cannot_be_made_is_refused_where_it_stands(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        inventory(text)
    assert said in str(error.value)


def test_wheels_are_known_by_their_content(tmp_path: pathlib.Path) -> None:
    write_wheel(tmp_path, "engine", "1.0")
    found = read_wheels("cuda", str(tmp_path), shell=LocalShell())
    assert [file.name for file in found.manifest.files] == ["engine-1.0-py3-none-any.whl"]
    digest = found.manifest.digest
    write_wheel(tmp_path, "engine", "1.0", needs="kernels")
    assert read_wheels("cuda", str(tmp_path), shell=LocalShell()).manifest.digest != digest


def test_a_folder_without_wheels_and_one_with_sources_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="found no wheel among 0 files"):
        read_wheels("cuda", str(tmp_path), shell=LocalShell())
    write_wheel(tmp_path, "engine", "1.0")
    (tmp_path / "kernels-2.1.tar.gz").write_bytes(b"x")
    with pytest.raises(InputError, match=r"found kernels-2\.1\.tar\.gz, needed wheels alone"):
        read_wheels("cuda", str(tmp_path), shell=LocalShell())


def made(host: str, **packages: str) -> Made:
    return Made(
        host=host, folder="/e/cuda-1", python="3.11.2", packages=packages, requirements=("vllm==1",)
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (made("b", vllm="1", torch="2.9"), "b: /e/cuda-1: found torch 2.9, needed 2.8 as on a"),
        (made("b", vllm="1"), "b: /e/cuda-1: found torch none, needed 2.8 as on a"),
        (made("b", vllm="1", torch="2.8", x="3"), "b: /e/cuda-1: found x 3, needed none as on a"),
    ],
)
def test_hosts_with_other_packages_are_refused(other: Made, said: str) -> None:
    first = made("a", vllm="1", torch="2.8")
    check_alike((first, first))
    with pytest.raises(Refused) as error:
        check_alike((first, other))
    assert str(error.value) == said
