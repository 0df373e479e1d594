"""Which store a root's description names, and the one arbiter of its generations."""

from __future__ import annotations

import pytest

from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.root import Root
from trajlake.runtime.stores import arbiter, lease_store, local_folder, mail_store
from trajlake.runtime.wal.journal_errors import RootError

KEY = "ab" * 16


def test_without_urls_everything_is_in_the_root(tmp_path):
    root = Root.open(str(tmp_path / "journal"))
    assert isinstance(lease_store(root), FileLeaseStore)
    assert isinstance(mail_store(root), FileMailStore)
    assert arbiter(root).create(KEY, 0, b"{}")
    assert (tmp_path / "journal" / "generations" / KEY / "0.json").exists()


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_two_roots_with_one_landing_share_its_arbiter(tmp_path, prefix):
    landing = tmp_path / "landing"
    landing.mkdir()
    roots = [Root.open(str(tmp_path / name), stores={"landing": f"{prefix}{landing}"}) for name in ("a", "b")]
    assert [arbiter(root).create(KEY, 0, b"{}") for root in roots] == [True, False]
    assert (landing / "generations" / KEY / "0.json").exists()


def test_a_url_that_nothing_installed_opens_is_named_with_what_to_do(tmp_path):
    root = Root.open(str(tmp_path / "journal"), stores={"lease": "nosuch://x"})
    for opened in (lease_store, mail_store):
        with pytest.raises(RootError, match="'nosuch'"):
            opened(root)


@pytest.mark.parametrize(
    ("url", "folder"), [("/a/b", "/a/b"), ("file:///a/b%20c", "/a/b c"), ("s3://bucket/x", None), ("rel", "rel")]
)
def test_what_lies_on_this_host(url, folder):
    assert local_folder(url) == folder
