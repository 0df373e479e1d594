"""An anchor in a bucket: what is sent, what a server may answer, and the lock on a real server."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.pipelines.audit_lakes import make_lake
from tests.pipelines.test_audit_command import clean
from tests.support.object_store import ACCESS_KEY, CREDENTIALS, SECRET_KEY, shared_endpoint
from trajlake.pipelines.audit import anchor_bucket
from trajlake.pipelines.audit.anchor import deliver
from trajlake.pipelines.audit.anchor_bucket import put_once
from trajlake.pipelines.audit.anchor_read import make_key
from trajlake.runtime.cli_errors import UserError


class Recorder(ThreadingHTTPServer):
    """A server that speaks as much of S3 as an anchor needs, keeps every request, and is as bad as a test wants."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.objects: dict[str, dict[str, str]] = {}
        self.bodies: dict[str, bytes] = {}
        self.honours_locks, self.reads = True, 200
        self.lost_answers = self.conflicts = 0
        super().__init__(("127.0.0.1", 0), Answers)

    @property
    def url(self) -> str:
        return f"s3://vault/2026/acme.json?endpoint_url=http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    server: Recorder

    def log_message(self, *_: Any) -> None:
        pass

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        self.server.asked.append(("PUT", path, headers, body))
        if path in self.server.objects and headers.get("if-none-match") == "*":
            self._say(412, b"<Error><Code>PreconditionFailed</Code><Message>there</Message></Error>")
            return
        if self.server.conflicts:
            self.server.conflicts -= 1
            self._say(409, b"<Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>")
            return
        self.server.objects[path], self.server.bodies[path] = headers, body
        if self.server.lost_answers:
            self.server.lost_answers -= 1
            self._say(500, b"<Error><Code>InternalError</Code><Message>lost</Message></Error>")
            return
        self._say(200, b"", {"ETag": '"x"', "x-amz-version-id": "v1"})

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path, {}, b""))
        self._say(200, self.server.bodies[self.path.partition("?")[0]], {"x-amz-version-id": "v1"})

    def do_HEAD(self) -> None:
        self.server.asked.append(("HEAD", self.path, {}, b""))
        kept = self.server.objects.get(self.path.partition("?")[0], {})
        locks = {name: value for name, value in kept.items() if name.startswith("x-amz-object-lock")}
        self._say(self.server.reads, b"", locks if self.server.honours_locks else {})

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Date": format_datetime(dt.datetime.now(dt.UTC)), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    server = Recorder()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_request_holds_the_lock_and_never_writes_over(recorder: Recorder) -> None:
    put_once(b'{"anchor": 1}', recorder.url, 30)
    (method, path, headers, _) = recorder.asked[0]
    assert (method, path) == ("PUT", "/vault/2026/acme.json")
    assert headers["if-none-match"] == "*"
    assert headers["x-amz-object-lock-mode"] == "COMPLIANCE"
    until = dt.datetime.fromisoformat(headers["x-amz-object-lock-retain-until-date"])
    assert abs(until - dt.datetime.now(dt.UTC) - dt.timedelta(days=30)) < dt.timedelta(minutes=5)
    assert any(name.startswith("x-amz-checksum") or name == "content-md5" for name in headers), "S3 demands one"
    assert [asked[0] for asked in recorder.asked] == ["PUT", "HEAD"], "the lock is read back"
    with pytest.raises(UserError, match="never written over"):
        put_once(b'{"anchor": 2}', recorder.url, None)


def test_a_put_whose_answer_was_lost_is_known_as_our_own_and_its_lock_is_checked(recorder: Recorder) -> None:
    recorder.lost_answers = 1
    put_once(b'{"anchor": 1}', recorder.url, 30)
    assert [asked[0] for asked in recorder.asked] == ["PUT", "PUT", "GET", "HEAD"]
    assert "versionId=v1" in recorder.asked[-1][1]
    recorder.objects, recorder.lost_answers, recorder.honours_locks = {}, 1, False
    with pytest.raises(UserError, match="written, but not locked"):
        put_once(b'{"anchor": 1}', recorder.url, 30)


def test_a_put_that_meets_another_under_way_is_tried_again(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor_bucket, "CONFLICT_PAUSE_S", 0.0)
    recorder.conflicts = 1
    put_once(b"{}", recorder.url, None)
    assert [asked[0] for asked in recorder.asked] == ["PUT", "PUT"]
    recorder.objects, recorder.conflicts = {}, 99
    with pytest.raises(UserError, match="never written over"):
        put_once(b"{}", recorder.url, None)


def test_a_server_that_ignores_the_lock_is_found_out(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    recorder.honours_locks = False
    with pytest.raises(UserError, match="written, but not locked") as found:
        put_once(b"{}", recorder.url, 30)
    assert found.value.exit_code == 3
    recorder.reads, recorder.objects = 403, {}
    put_once(b"{}", recorder.url, 30)
    assert "could not be checked" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["s3://", "s3://bucket", "s3://key:secret@bucket/a"])
def test_a_url_without_bucket_or_key_or_with_credentials_is_refused(url: str) -> None:
    with pytest.raises(UserError) as found:
        put_once(b"{}", url, None)
    assert "secret" not in str(found.value)


def test_a_server_that_is_not_there_and_a_file_that_cannot_be_locked_are_one_line(
    tmp_path: Path, recorder: Recorder
) -> None:
    recorder.server_close()
    with pytest.raises(UserError, match="run it again") as gone:
        put_once(b"{}", f"s3://b/k?endpoint_url=http://127.0.0.1:{recorder.server_port}", None)
    assert (gone.value.exit_code, "\n" in str(gone.value)) == (3, False)
    with pytest.raises(UserError, match="cannot be locked"):
        deliver({}, str(tmp_path / "a.json"), 3)
    assert not (tmp_path / "a.json").exists()


@pytest.mark.long
def test_a_locked_anchor_cannot_be_removed_from_a_real_server(
    tmp_path: Path, trajlake: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import botocore.exceptions
    import botocore.session

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    endpoint = shared_endpoint()
    session = botocore.session.Session()
    session.set_credentials(ACCESS_KEY, SECRET_KEY)
    client = session.create_client("s3", endpoint_url=endpoint, region_name="us-east-1")
    bucket = f"vault-{tmp_path.name.replace('_', '-').lower()[-20:].strip('-')}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    make_lake(tmp_path, [clean("one")])
    make_key(str(tmp_path / "k"))
    make = ("anchor", "make", "--lake", "lake", "--tenant", "acme", "--key", "k", "--lock-days", "1")
    done = trajlake(*make, "--to", f"s3://{bucket}/a1.json?endpoint_url={endpoint}")
    assert done.returncode == 0, done.stderr
    kept = client.get_object(Bucket=bucket, Key="a1.json")
    document = kept["Body"].read()
    assert [head[0] for head in json.loads(document)["heads"]] == ["one"]
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        client.delete_object(Bucket=bucket, Key="a1.json", VersionId=kept["VersionId"])
    (tmp_path / "copy.json").write_bytes(document)
    assert trajlake("anchor", "verify", "copy.json", "--public-key", "k.pub", "--lake", "lake").returncode == 0
    with pytest.raises(UserError, match="never written over"):
        put_once(b"{}", f"s3://{bucket}/a1.json?endpoint_url={endpoint}", 1)
    with pytest.raises(UserError, match="must have been made with object lock") as found:
        put_once(b"{}", f"s3://lake/{bucket}.json?endpoint_url={endpoint}", 1)
    assert found.value.exit_code == 3
