"""Waivers: a finding that is accepted does not block, until its day."""

import datetime

import pytest

from llmdeploy.document import parse
from llmdeploy.errors import InputError
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.examine import Report, examine
from llmdeploy.facts.report import summary, table
from llmdeploy.facts.waiver import Waivers
from llmdeploy.inventory import Inventory, Waiver

from . import hosts
from .hosts import facts

TODAY_S = datetime.datetime(2027, 1, 15, 12, tzinfo=datetime.UTC).timestamp()
OLD_GLIBC = Waiver(check="os.glibc", reason="gateway runs elsewhere", until="2027-01-31")


def _examined(*waivers: Waiver, **changed: object) -> Report:
    said = facts(**changed).model_copy(update={"collected_s": TODAY_S})
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(said,))
    return examine(bundle, service=hosts.service(), inventory=hosts.inventory(), waivers=waivers)


def test_a_waived_fail_does_not_block_and_says_why_and_until_when() -> None:
    assert not _examined(glibc="2.28").fit
    report = _examined(OLD_GLIBC, glibc="2.28")
    assert report.fit
    waived = [f for f in report.findings if f.waived]
    assert [f.check for f in waived] == ["os.glibc"]
    assert waived[0].waived == "gateway runs elsewhere (until 2027-01-31)"
    assert "1 waived" in summary(report)
    assert "waived  gateway runs elsewhere" in table(report)


def test_its_last_day_still_counts_and_the_next_does_not() -> None:
    last = OLD_GLIBC.model_copy(update={"until": "2027-01-15"})
    over = OLD_GLIBC.model_copy(update={"until": "2027-01-14"})
    assert _examined(last, glibc="2.28").fit
    report = _examined(over, glibc="2.28")
    assert not report.fit
    assert any("it ended on 2027-01-14" in f.found for f in report.findings)


def test_one_in_the_inventory_holds_as_well_and_names_its_own_host() -> None:
    bundle = Bundle(
        schema=1,
        llmdeploy="0.1.0",
        hosts=(facts(glibc="2.28").model_copy(update={"collected_s": TODAY_S}),),
    )
    places = hosts.inventory(waivers=(OLD_GLIBC.model_copy(update={"host": "local"}),))
    report = examine(bundle, service=hosts.service(), inventory=places)
    assert report.fit
    assert [f.check for f in report.findings if f.waived] == ["os.glibc"]
    waiver = "{check: os.swap, host: b, reason: it is zram, until: 2027-01-31}"
    text = f"hosts: [{{name: a}}]\nwaivers: [{waiver}]"
    with pytest.raises(InputError, match=r"found a waiver for b, needed one of the hosts' names"):
        parse(text, Inventory, place="cluster.yaml")


def test_a_waiver_for_another_host_or_check_holds_nothing() -> None:
    elsewhere = OLD_GLIBC.model_copy(update={"host": "other"})
    assert not _examined(elsewhere, glibc="2.28").fit


def test_a_waiver_that_nothing_needs_is_told() -> None:
    report = _examined(OLD_GLIBC)
    assert report.fit
    assert any("os.glibc is fine on all hosts" in f.found for f in report.findings)


def test_a_pass_is_never_marked() -> None:
    report = _examined(OLD_GLIBC)
    assert not any(f.waived for f in report.findings)


def test_the_file_is_read_as_people_write_it() -> None:
    text = "waivers:\n- {check: os.swap, reason: swap is zram here, until: 2027-01-31}\n"
    assert parse(text, Waivers, place="w.yaml").waivers[0].until == "2027-01-31"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("waivers: [{check: os.swap, until: 2027-01-31}]", "reason"),
        ("waivers: [{check: os.swap, reason: zram is here, until: '2027-02-31'}]", "2027-02-31"),
        ("waivers: [{check: os.swap, reason: no, until: 2027-01-31}]", "reason"),
        ("waivers: [{chek: os.swap, reason: zram is here, until: 2027-01-31}]", "waivers/0/check"),
    ],
)
def test_a_wrong_waiver_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, Waivers, place="w.yaml")
    assert said in str(caught.value)
    assert caught.value.fix
