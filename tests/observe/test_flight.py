"""Requests in flight: from the access log's past, then from what the gateway says."""

import pytest

from llmdeploy.edge import Response
from llmdeploy.errors import Unreachable
from llmdeploy.observe.flight import Flight, flight, in_flight_of
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.release.layout import ServiceLayout


def record(started_s: float, duration_s: float, *, release: str = "a", served_by: str = "a"):
    return RequestRecord(
        id="r", started_s=started_s, release=release, served_by=served_by, ending=Ending.OK,
        status=200, probe=False, duration_s=duration_s, ttft_s=0.1,
    )  # fmt: skip


def test_ended_requests_count_while_they_ran():
    # 10 to 20 and 15 to 25: from 10 to 25 there are 1, 2 and 1, each for 5 s: 20 / 15
    other = record(10, 99, release="b", served_by="b")
    flying = in_flight_of("a", [record(10, 10), record(15, 10), other], ())
    assert flying.mean(10, 25) == pytest.approx(20 / 15)
    assert flying.mean(15, 20) == pytest.approx(2)


def test_from_the_first_look_on_the_gateway_is_believed():
    # 30 to 31: 4 in flight; from halfway, 32.5 on: 8; the log knows one of them only
    flights = [Flight(at_s=30, by_release={"a": 4}), Flight(at_s=35, by_release={"a": 8})]
    flying = in_flight_of("a", [record(20, 20)], flights)
    assert flying.mean(20, 30) == pytest.approx(1)
    assert flying.mean(30, 35) == pytest.approx((4 * 2.5 + 8 * 2.5) / 5)
    assert flying.mean(36, 40) == pytest.approx(8)


def test_a_request_is_never_beside_less_than_itself():
    flying = in_flight_of("a", [], [Flight(at_s=30, by_release={})])
    assert flying.mean(31, 32) == 1
    assert flying.mean(31, 31) == 1
    assert in_flight_of("a", [], ()).mean(1, 2) == 1


LAYOUT = ServiceLayout(root="/s/chat")
STATS = b"""cluster.0682a8a3da48-first.upstream_rq_active: 0
cluster.0682a8a3da48.upstream_rq_active: 12
cluster.aacc6ee12804.upstream_rq_active: 23
http.public.downstream_rq_active: 32
"""


class Gateway:
    """Answers the admin's question, or nothing."""

    def __init__(self, body: bytes | None) -> None:
        self.body = body

    def request(self, method, url, *, timeout_s, **_):
        if self.body is None:
            raise Unreachable("no answer", fix="none")
        assert (method, url) == ("GET", "http://admin/stats?filter=upstream_rq_active$")
        return Response(status=200, headers={}, body=self.body)


def test_the_gateway_says_what_each_release_has_flown():
    seen = flight(LAYOUT, http=Gateway(STATS), at_s=5)
    assert seen is not None
    assert seen.at_s == 5
    assert (seen.by_release["0682a8a3da48"], seen.by_release["aacc6ee12804"]) == (12, 23)


@pytest.mark.parametrize("body", [None, b"", b"<html>"])
def test_a_gateway_that_does_not_say_is_none(body):
    assert flight(LAYOUT, http=Gateway(body), at_s=5) is None
