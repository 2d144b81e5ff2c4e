"""The HTML file: whole, alone, and safe whatever hosts say."""

import html.parser

from llmdeploy.facts.bundle import Bundle, HostFacts, Unreached
from llmdeploy.facts.compare import Change
from llmdeploy.facts.examine import Report, examine
from llmdeploy.facts.report import table
from llmdeploy.facts.report_html import render
from llmdeploy.inventory import Waiver

from . import hosts
from .hosts import facts
from .spoiled import H100, TWO, states

VOID = {"meta", "br", "hr", "img", "link", "input"}


class _Balanced(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _two(odd: HostFacts | None = None) -> Report:
    first = facts(**H100).model_copy(update={"host": "a"})
    second = (odd or facts(**H100)).model_copy(update={"host": "b"})
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(first, second))
    return examine(bundle, service=hosts.service(), inventory=TWO)


def test_every_tag_is_closed_and_nothing_is_fetched() -> None:
    sick = facts(**{**H100, "card_states": states(2, last={"rows_failed": True}), "glibc": "2.28"})
    text = render(_two(sick), changes=[Change(host="a", fact="kernel", before="1", now="2")])
    page = _Balanced()
    page.feed(text)
    assert page.open == []
    assert page.outside == []
    assert "@import" not in text
    assert "url(" not in text


def test_findings_stand_under_the_work_they_need() -> None:
    worn = states(2, last={"rows_failed": True})
    text = render(_two(facts(**{**H100, "glibc": "2.28", "card_states": worn})))
    settings, hardware = text.index("Change settings"), text.index("Look at the hardware")
    assert settings < text.index("glibc 2.28") < hardware < text.index("a row could not")
    assert "said by" in text


def test_what_a_host_says_is_never_markup() -> None:
    evil = facts(**{**H100, "glibc": "<script>alert(1)</script> glibc 2.28"}, unknown=("uid",))
    evil = evil.model_copy(update={"glibc": "2.28", "os_name": "<img src=x onerror=alert(1)>"})
    assert "<img" not in render(_two(evil))


def test_the_same_report_gives_the_same_bytes() -> None:
    assert render(_two()) == render(_two())


def test_a_host_that_was_not_reached_and_a_waiver_are_shown() -> None:
    gone = Unreached(host="b", collected_s=1.8e9, duration_s=5.0, found="no route", fix="see it")
    here = facts(**H100, glibc="2.28").model_copy(update={"host": "a"})
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(here,), unreached=(gone,))
    waiver = Waiver(check="os.glibc", reason="gateway is elsewhere", until="2099-01-01")
    report = examine(bundle, service=hosts.service(), inventory=TWO, waivers=(waiver,))
    text = render(report)
    assert "no route" in text
    assert "gateway is elsewhere (until 2099-01-01)" in text
    assert "net.ssh.reach" in table(report)
    assert not report.fit


def test_the_text_merges_hosts_that_lack_the_same() -> None:
    both = facts(**H100, swap_used_bytes=2**30)
    first, second = (both.model_copy(update={"host": name}) for name in "ab")
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(first, second))
    text = table(examine(bundle, service=hosts.service(), inventory=TWO))
    assert "os.swap  (a, b)" in text
    assert "2 hosts: Linux 6.1.0 on x86_64" in text
