"""Each release has its own ports, and a taken one is named with who has it."""

import os
import socket

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Ports
from llmdeploy.release.ports import (
    block,
    engine_port,
    free_block,
    holder,
    listening,
    parse_listening,
)

from ..fakes import FakeShell

PORTS = Ports(first=21000, block_size=4, blocks=3)
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:5208 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 0
   1: 0100007F:520C 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 31338 1 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:5210 00000000000000000000000000000000:0000 0A \
00000000:00000000 00:00000000 00000000 1000 0 40000 1 0
"""


def test_blocks_lie_one_after_the_other():
    # 21000 + 2 x 4 = 21008
    assert block(2, PORTS) == range(21008, 21012)
    assert engine_port(1, 3, PORTS) == 21007


def test_a_replica_beyond_the_block_is_refused():
    with pytest.raises(Refused, match="replica 5 needs a port, a block has 4"):
        engine_port(0, 4, PORTS)


def test_only_listening_sockets_count():
    assert parse_listening(TCP) == {21000: "31337"}
    host = FakeShell(files={"/proc/net/tcp": TCP.encode(), "/proc/net/tcp6": TCP6.encode()})
    assert listening(shell=host) == {21000: "31337", 21008: "40000"}


def test_the_lowest_free_block_is_given_out():
    assert free_block(PORTS, taken=(), listening_ports=()) == 0
    assert free_block(PORTS, taken=(0,), listening_ports=(21006,)) == 2


def test_no_free_block_is_refused_with_range_and_count():
    with pytest.raises(Refused, match="ports 21000-21011: all 3 blocks of 4 are taken"):
        free_block(PORTS, taken=(0, 2), listening_ports=(21004,))


def test_the_process_behind_a_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"process {os.getpid()} (" in str(holder(port, shell=LocalShell()))
    assert holder(port, shell=LocalShell()) is None
