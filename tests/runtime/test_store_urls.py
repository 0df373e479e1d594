"""Secrets in store URLs are seen, never shown and never written into a root."""

from __future__ import annotations

import pytest

from trajlake.runtime.root import Root
from trajlake.runtime.store_urls import secret_in, without_secrets
from trajlake.runtime.wal.journal_errors import RootError

SECRET_URLS = [
    ("postgresql://ada:hunter2@db/x", "postgresql://ada@db/x"),
    ("postgresql://ada:hunter2@h1:1,h2:2/x?sslmode=require", "postgresql://ada@h1:1,h2:2/x?sslmode=require"),
    ("postgresql:///x?host=/run&password=hunter2", "postgresql:///x?host=%2Frun"),
    ("s3://bucket/p?secret=hunter2", "s3://bucket/p"),
]


@pytest.mark.parametrize(("url", "shown"), SECRET_URLS)
def test_a_secret_is_refused_by_the_root_and_left_out_of_what_is_shown(tmp_path, url, shown):
    assert secret_in(url)
    assert without_secrets(url) == shown
    with pytest.raises(RootError, match="by reference") as refusal:
        Root.open(str(tmp_path / "journal"), stores={"lease": url})
    assert "hunter2" not in str(refusal.value)
    assert not (tmp_path / "journal").exists()


@pytest.mark.parametrize(
    "url", ["postgresql://ada@db/x", "postgresql://ada:@/x?host=/run", "s3://b/p", "/a/b", "file:///a"]
)
def test_a_url_without_one_is_kept_as_it_is(tmp_path, url):
    assert without_secrets(url) == url
    Root.open(str(tmp_path / "journal"), stores={"lease": url})
    assert Root.open(str(tmp_path / "journal")).facts.stores == {"lease": url}
