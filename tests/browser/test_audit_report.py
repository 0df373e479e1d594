"""The pages that auditors open, in a real browser: they show what the log says, run none of it, and fetch nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.pipelines.audit_lakes import make_lake
from tests.pipelines.test_audit_command import breaking
from tests.sql.audit_story import Story
from trajlake.pipelines.audit.audit import Request, run_audit
from trajlake.pipelines.audit.audit_bundle import write_bundle
from trajlake.pipelines.audit.evidence import gather
from trajlake.pipelines.audit.evidence_page import evidence_page
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.schemas.events import MessageAdded

pytestmark = pytest.mark.browser

ATTACKS = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "</code></td></table><iframe src='http://127.0.0.1:9/'></iframe>",
    "&lt;script&gt;document.title='owned'&lt;/script&gt;",
    "\u202egnp.exe",
    "<style>body{display:none}</style>",
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def dom_of(chromium: str, page: Path, folder: Path) -> str:
    """Open a page, let its scripts run if it has any, and return the document as the browser then sees it."""
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={folder}", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    return done.stdout


def attacked(name: str) -> Story:
    story = breaking(name, tool=name)
    for text in ATTACKS:
        story.show(story.add(MessageAdded(role="user", wire={"content": text}, item_hash="0" * 64)))
    story.think(model=ATTACKS[0])
    return story


def check(dom: str, title: str) -> None:
    assert re.search(r"<title>([^<]*)</title>", dom), dom[:500]
    assert f"<title>{title}" in dom
    assert "owned</title>" not in dom
    body = dom[dom.index("<body") :]
    assert not re.search(r"<(script|img|iframe|svg|style|object|link|embed|form)\b", body)
    assert not re.search(r"\son\w+=", re.sub(r">[^<]*<", "><", body))
    assert "document.title='owned'" in body


def test_the_report_of_a_hostile_log_shows_it_and_runs_none_of_it(chromium: str, tmp_path: Path) -> None:
    lake = make_lake(tmp_path, [attacked(text) for text in ATTACKS])
    report = run_audit(Request(lake=lake, record=False, actor=ATTACKS[0]))
    write_bundle(report, str(tmp_path / "bundle"))
    dom = dom_of(chromium, tmp_path / "bundle" / "report.html", tmp_path / "profile")
    check(dom, "Audit, snapshot 1")
    assert "self-attested" in dom
    assert dom.count("<tr>") > len(report.results)


def test_the_evidence_on_a_hostile_trajectory_shows_it_and_runs_none_of_it(chromium: str, tmp_path: Path) -> None:
    lake = Lake.open(make_lake(tmp_path, [attacked(ATTACKS[0])]))
    page = tmp_path / "evidence.html"
    page.write_text(evidence_page(gather(lake, lake.newest(), "acme", ATTACKS[0])))
    check(dom_of(chromium, page, tmp_path / "profile"), "Evidence: &lt;script&gt;")
