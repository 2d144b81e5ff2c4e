"""service.yaml and its cluster.yaml from disk: paths made absolute, errors that name the file."""

import pathlib
import sys

import pytest

from llmdeploy.cli.loading import load
from llmdeploy.errors import InputError

SERVICE = "cluster: conf/cluster.yaml\nmodel: {id: tiny}\n"


def _write(folder: pathlib.Path, *, service: str = SERVICE, cluster: str = "schema: 1\n") -> str:
    (folder / "conf").mkdir()
    (folder / "service.yaml").write_text(service)
    (folder / "conf" / "cluster.yaml").write_text(cluster)
    return str(folder / "service.yaml")


def test_the_home_directory_is_filled_in(tmp_path: pathlib.Path) -> None:
    loaded = load(_write(tmp_path))
    home = pathlib.Path.home()
    assert loaded.inventory.state_root == f"{home}/.local/state/llmdeploy"
    assert loaded.inventory.model_store == f"{home}/.local/share/llmdeploy/models"


def test_a_path_is_relative_to_the_file_that_names_it(tmp_path: pathlib.Path) -> None:
    service = SERVICE + "gateway: {tls_certificate: tls/c.pem, tls_key: /etc/k.pem}\n"
    cluster = "state_root: ../state\nmodel_store: models\n"
    loaded = load(_write(tmp_path, service=service, cluster=cluster))
    assert loaded.inventory.state_root == f"{tmp_path}/state"
    assert loaded.inventory.model_store == f"{tmp_path}/conf/models"
    assert loaded.service.gateway.tls_certificate == f"{tmp_path}/tls/c.pem"
    assert loaded.service.gateway.tls_key == "/etc/k.pem"


def test_a_given_state_root_wins_over_the_file(tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path, cluster="state_root: /from/file\n")
    assert load(path, state_root="/from/option").inventory.state_root == "/from/option"
    assert load(path).inventory.state_root == "/from/file"


def test_the_hosts_python_is_the_clis_own_unless_named(tmp_path: pathlib.Path) -> None:
    path = _write(tmp_path)
    assert load(path).python == sys.executable
    (tmp_path / "conf" / "cluster.yaml").write_text("hosts: [{python: /opt/llm/bin/python}]\n")
    assert load(path).python == "/opt/llm/bin/python"


def test_a_missing_service_file_is_named_with_a_way_to_get_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: found no readable file: No such") as caught:
        load(str(tmp_path / "none.yaml"))
    assert "llmdeploy init" in caught.value.fix


def test_a_missing_cluster_file_is_named_with_who_names_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("cluster: other.yaml\nmodel: {id: tiny}\n")
    with pytest.raises(InputError, match=r"other\.yaml: .*named by `cluster` in .*service\.yaml"):
        load(str(path))


def test_a_folder_or_a_binary_file_is_no_document(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        load(str(tmp_path))
    (tmp_path / "s.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no UTF-8 text"):
        load(str(tmp_path / "s.yaml"))
