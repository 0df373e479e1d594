"""Claude Code session files (`~/.claude/projects/*/*.jsonl`): one record per line, no public specification.

What shapes the mapping:

* A reply is written as one record per content block, all with one `message.id` and a repeated usage: they become
  one `ModelReplied`. It closes when another reply or a prompt follows, or at the end where its `stop_reason`
  shows it finished; otherwise it is held back with all behind it. Results written between its blocks wait for it.
* Records without `message.id` (scrubbed files) are replies of their own; usage repeated from the block before
  is counted once.
* Sub-agents (`agentId`, or `isSidechain`) are trajectories of their own, with the session as parent.
* A record repeated under the same uuid adds nothing. A session that begins with another one's records (resumed
  or forked into a new file) gives them as copied context, and nothing at all if it holds nothing else.
* Everything else is kept raw under its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from trajlake.schemas.events import ImportSource, ParentAction, Usage

from ..sources import Line, Source
from .anthropic_parts import FORMAT, calls_in, output_and_shape, usage_of, wire_of
from .build import Trajectory, first_record_hash, label, session_id, time_us, wire_item
from .claude_records import (
    OpenReply,
    Part,
    Record,
    Session,
    error_text,
    identity_of,
    lineage_of,
    merged,
    opening_of,
    text_of_message,
)
from .contract import BadSource, Item, Lineage, Loss, ReadOptions
from .json_text import NotJson, decode, is_absent, string_of, text_of

NAME: Final = "claude-code"
REJECTED: Final = "The user doesn't want to proceed with this tool use"
TURN_OVER: Final = frozenset({"turn_duration", "stop_hook_summary", "compact_boundary"})
"""Subtypes of `system` records that are written only after a reply is complete."""


class Reader:
    """Reads one file, line by line. Items come out of `ready` as soon as nothing later can change them."""

    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        self.source = source
        self.options = options
        self.loss = loss
        self.ready: list[Item] = []
        self.given = False
        self.sessions: dict[str, Session] = {}
        self.current: Session | None = None
        self.early: list[tuple[Record | None, Line, str]] = []
        self.chains: dict[str, str] = {}

    def read(self) -> Iterator[Item]:
        for line in self.source.lines(self.loss.problem):
            self._line(line)
            if self.ready:
                self.given = True
                yield from self.ready
                self.ready.clear()
        self._finish()
        yield from self.ready

    # -- lines

    def _line(self, line: Line) -> None:
        if not line.data.strip():
            self.loss.skip("blank line")
            return
        try:
            record = decode(line.data, Record)
        except NotJson as error:
            if not line.whole:
                self.loss.problem(f"line {line.number}", f"the last line is cut short ({error}); earlier lines stand")
                self.loss.skip("torn last line")
                return
            self.loss.problem(f"line {line.number}", f"is no JSON ({error}); kept as it is")
            self._keep(None, line, "corrupt line")
            return
        if record is None:
            self._keep(None, line, "not an object")
            return
        if record.is_sidechain is True and not isinstance(record.agent_id, str):
            self._note_chain(record)
        self._record(record, line)

    def _note_chain(self, record: Record) -> None:
        if isinstance(record.parent_uuid, str) and isinstance(record.uuid, str):
            self.chains[record.uuid] = self.chains.get(record.parent_uuid, record.parent_uuid)

    def _record(self, record: Record, line: Line) -> None:
        session = self.current
        if session is None or record.session_id != session.name or record.is_sidechain is True:
            session = self._session(record, line)
        if session is None:
            return
        if self.options.copied and not session.own and identity_of(record) in self.options.copied:
            session.copies.append((record, line))
            return
        kind = record.type if isinstance(record.type, str) else "untyped"
        if self._is_copy(session, record, line):
            self.loss.skip(f"{kind} (repeated uuid)")
            return
        if self.options.copied and not session.own and kind in ("assistant", "user"):
            self._emit_copies(session)
        if kind == "assistant" and self._assistant(session, record, line):
            return
        if kind == "user" and self._user(session, record, line):
            return
        if kind == "system":
            kind = f"system/{label(record.subtype)}"
            if record.subtype in TURN_OVER:
                self._close(session)
            if record.subtype == "compact_boundary":
                session.boundary = (record, line)
        self._later(session, lambda: self._kept(session, kind, record, line), kind)

    def _is_copy(self, session: Session, record: Record, line: Line) -> bool:
        if not isinstance(record.uuid, str) or record.uuid == record.parent_uuid:
            return False
        mark = hash(line.data if is_absent(record.message) else bytes(record.message))
        if session.seen.get(record.uuid) == mark:
            return True
        session.seen[record.uuid] = mark
        return False

    def _emit_copies(self, session: Session) -> None:
        """The session has gone on: what it copied from another one is its context."""
        session.own = True
        for record, line in session.copies:
            message = None if is_absent(record.message) else wire_of(record.message)[0]
            if record.type not in ("assistant", "user") or not isinstance(message, dict):
                self.loss.skip("copy of another session's record")
                continue
            session.trajectory.message(
                label(message.get("role")) or label(record.type), message, at=time_us(record.timestamp),
                place=f"line {line.number}", origin="copied",
            )  # fmt: skip
            if isinstance(record.uuid, str):
                session.places[record.uuid] = session.trajectory.context_length
            self.loss.map(f"{record.type} (copied)")
        session.last_own = session.trajectory.context_length
        session.copies.clear()

    # -- sessions

    def _session(self, record: Record, line: Line) -> Session | None:
        """Return the session a record belongs to; None if it has been put aside or kept."""
        name = record.session_id
        if not isinstance(name, str) or (self.current is None and not isinstance(record.type, str)):
            if self.current is None:
                self.early.append((record, line, record.type if isinstance(record.type, str) else "untyped"))
                return None
            return self.current
        try:
            return self._named(name, record, line)
        except BadSource as error:
            if self.given or self.ready:
                self.loss.problem(f"line {line.number}", f"{error}"[-200:])
                self._keep(record, line, "unusable session id")
                return None
            raise

    def _named(self, name: str, record: Record, line: Line) -> Session:
        # A main record may name the sub-agent whose answer it carries: only `isSidechain` makes it that agent's own.
        aside = record.is_sidechain is True
        agent = record.agent_id if aside and isinstance(record.agent_id, str) else ""
        if agent and name != f"agent-{agent}":
            key, parent = f"{name}/agent-{agent}", name
        elif aside and not agent and isinstance(record.uuid, str):
            key, parent = f"{name}/sidechain-{self.chains.get(record.uuid, record.uuid)}", name
        else:
            key, parent = name, ""
        session = self.sessions.get(key)
        if session is None:
            session = self.sessions[key] = self._open(key, parent, record, line)
        if self.current is None:
            self.current = session
        elif not parent and self.current is not session:
            for other in self.sessions.values():
                self._close(other)  # one writer per file: it has gone on to another session
            self.current = session
        return session

    def _open(self, key: str, parent: str, record: Record | None, line: Line) -> Session:
        place = f"line {line.number}"
        trajectory_id = session_id(NAME, key, self.source.name, place)
        above = session_id(NAME, parent, self.source.name, place) if parent else ""
        trajectory = Trajectory(
            trajectory_id,
            ImportSource(
                format=NAME,
                session=key,
                first_record_hash=first_record_hash(line.data),
                producer=NAME,
                producer_version=label(record.version if record else None),
            ),
            self.ready.append,
            self.loss,
            agent=label(record.attribution_agent if record else None) or NAME,
            parent=ParentAction(tenant=self.options.tenant, trajectory_id=above) if above else None,
        )
        trajectory.place = place
        session = Session(trajectory)
        for early, early_line, kind in self.early:
            self._kept(session, kind, early, early_line)
        self.early.clear()
        return session

    # -- kept records

    def _keep(self, record: Record | None, line: Line, kind: str) -> None:
        session = self.current
        if session is None:
            self.early.append((record, line, kind))
            return
        self._later(session, lambda: self._kept(session, kind, record, line), kind)

    def _kept(self, session: Session, kind: str, record: Record | None, line: Line) -> None:
        at = time_us(record.timestamp) if record is not None else None
        session.trajectory.keep(kind, text_of(line.data), at=at, place=f"line {line.number}")
        self.loss.keep(kind)
        if record is not None and isinstance(record.uuid, str):
            session.places[record.uuid] = session.trajectory.context_length

    def _later(self, session: Session, action: Callable[[], None], kind: str) -> None:
        """Do it now, or once the open reply is complete: events stand in the order of the source."""
        if session.reply is None:
            action()
        else:
            session.reply.waiting.append(action)
            session.reply.waiting_kinds.append(kind)

    # -- replies

    def _assistant(self, session: Session, record: Record, line: Line) -> bool:
        """Take an assistant record; False if it holds no message."""
        if is_absent(record.message):
            return False
        message, odd = wire_of(record.message)
        if not isinstance(message, dict) or not isinstance(message.get("content"), list):
            return False
        part = Part(record, message, odd)
        message_id = message.get("id")
        grouped = isinstance(message_id, str) and message_id and message_id != record.uuid
        reply = session.reply
        if grouped and reply is not None and reply.message_id == message_id:
            reply.parts.append(part)
            return True
        self._close(session)
        reply = OpenReply(part, line)
        if not grouped or message_id in session.closed:
            if grouped:
                self.loss.note("block after its reply was complete")
            self._emit_reply(session, reply, late=bool(grouped))
        else:
            session.reply = reply
        return True

    def _close(self, session: Session) -> None:
        reply = session.reply
        if reply is None:
            return
        session.reply = None
        session.closed.add(str(reply.message_id))
        self._emit_reply(session, reply, late=False)
        for action in reply.waiting:
            action()

    def _emit_reply(self, session: Session, reply: OpenReply, *, late: bool) -> None:
        record, message, odd = reply.parts[-1]
        raw = record.message
        if len(reply.parts) > 1:
            raw = merged(reply.parts)
            message, odd = wire_of(raw)
        blocks = message["content"]
        calls = calls_in(raw, blocks)
        is_error = record.is_api_error_message is True
        model, stop = message.get("model"), message.get("stop_reason")
        session.trajectory.reply(
            text_of(raw),
            wire_item(message, None if odd else bytes(raw)),
            format=FORMAT,
            calls=calls,
            at=time_us(reply.first.timestamp),
            place=f"line {reply.line.number}",
            keep_wire=odd,
            status="error" if is_error else "kept",
            usage=None if late else self._usage(session, message, reply),
            model=model if isinstance(model, str) and model != "<synthetic>" else "",
            stop_reason=label(stop) if stop is not None else None,
            response_id=label(message.get("id")),
            error="aborted mid stream" if record.is_aborted_mid_stream is True else error_text(blocks, is_error),
        )
        session.last_own = session.trajectory.context_length
        for part in reply.parts:
            uuid = part.record.uuid
            if isinstance(uuid, str):
                session.places[uuid] = session.trajectory.context_length
        self.loss.map("assistant", len(reply.parts))

    def _usage(self, session: Session, message: dict[str, Any], reply: OpenReply) -> Usage | None:
        usage = usage_of(message.get("usage"))
        message_id = message.get("id")
        if usage is None or len(reply.parts) > 1 or (isinstance(message_id, str) and message_id != reply.first.uuid):
            session.counted, session.prompted = None, False
            return usage
        shown = (usage.input_total, usage.cached_read, usage.cache_write)
        counted, made = session.counted, usage.output or 0
        same = counted is not None and counted[0] == shown
        if same and (not session.prompted or usage.cached_read or usage.cache_write):
            assert counted is not None
            session.counted = (shown, max(made, counted[1]))
            usage = Usage(output=max(0, made - counted[1]))
            self.loss.note("usage repeated for another block of one reply: counted once")
        else:
            session.counted = (shown, made)
        session.prompted = False
        return usage

    # -- user records

    def _user(self, session: Session, record: Record, line: Line) -> bool:
        """Take a user record; False if it holds no message that can be read."""
        if is_absent(record.message):
            return False
        message, odd = wire_of(record.message)
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, (str, list)):
            return False
        if isinstance(record.parent_uuid, str):
            session.has_parents = True
        if isinstance(content, str) or not any(map(_is_result, content)):
            self._close(session)
        part = Part(record, message, odd)
        self._later(session, lambda: self._emit_user(session, part, line), "user")
        return True

    def _emit_user(self, session: Session, part: Part, line: Line) -> None:
        record, message, odd = part
        trajectory, at, place = session.trajectory, time_us(record.timestamp), f"line {line.number}"
        text = None if odd else bytes(record.message)
        results = [block for block in part.blocks if _is_result(block)]
        if record.is_compact_summary is True:
            self._compaction(session, message, at, place)
        elif not results:
            self._branch(session, record)
            trajectory.set_task(text_of_message(message))
            trajectory.message(label(message.get("role")) or "user", wire_item(message, text), at=at, place=place)
            session.last_own = trajectory.context_length
        else:
            outputs = [self._result(session, record, block, text, at, place) for block in results]
            rest = [block for block in part.blocks if not _is_result(block)]
            if rest:
                trajectory.message("user", {"role": "user", "content": rest}, at=at, place=place)
            self._structured(session, record, outputs, at, place)
        session.prompted = True
        if isinstance(record.uuid, str):
            session.places[record.uuid] = trajectory.context_length
        self.loss.map("user")

    def _result(
        self, session: Session, record: Record, block: dict[str, Any], text: bytes | None, at: int | None, place: str
    ) -> Any:
        """Add the result that a block holds; return what it delivered."""
        output, shaped = output_and_shape(block.get("content"))
        failed = block.get("is_error") is True
        refused = record.tool_denial_kind is not None or (
            failed and isinstance(output, str) and output.startswith(REJECTED)
        )
        provider_id = label(block.get("tool_use_id"))
        if not provider_id and isinstance(record.source_tool_assistant_uuid, str):
            self.loss.note("result without a call id: paired by its assistant record")
        session.trajectory.result(
            provider_id,
            output,
            wire_item(block, text),
            status="refused" if refused else "error" if failed else "ok",
            at=at,
            place=place,
            keep_wire=shaped,
        )
        return output

    def _structured(self, session: Session, record: Record, outputs: list[Any], at: int | None, place: str) -> None:
        """Keep `toolUseResult`, the harness's own copy of a result, unless it only repeats the delivered text."""
        if is_absent(record.tool_use_result):
            return
        text = string_of(record.tool_use_result)
        if text is not None and any(isinstance(one, str) and text in (one, f"Error: {one}") for one in outputs):
            self.loss.note("toolUseResult repeats the delivered text")
            return
        session.trajectory.keep("toolUseResult", text_of(record.tool_use_result), at=at, place=place)
        self.loss.note("toolUseResult kept beside its result")

    def _compaction(self, session: Session, message: dict[str, Any], at: int | None, place: str) -> None:
        boundary, session.boundary = session.boundary, None
        metadata = boundary[0].compact_metadata if boundary else None
        data = metadata if isinstance(metadata, dict) else {}
        before = data.get("preTokens")
        session.trajectory.compacted(
            output_and_shape(message.get("content"))[0],
            at=at,
            place=place,
            trigger=label(data.get("trigger")),
            tokens_before=before if isinstance(before, int) else None,
        )
        session.last_own = session.trajectory.context_length

    def _branch(self, session: Session, record: Record) -> None:
        """Go back where the prompt's parent stands, if replies or messages lie behind it."""
        trajectory = session.trajectory
        parent = record.parent_uuid
        target = session.places.get(parent) if isinstance(parent, str) else None
        if parent is None and session.has_parents and session.last_own:
            self.loss.note("branch: a prompt starts over")
            trajectory.rewind(0)
        elif target is not None and session.last_own > target and record.uuid != parent:
            self.loss.note("branch: a prompt goes back to an earlier record")
            trajectory.rewind(target)

    # -- the end of the file

    def _finish(self) -> None:
        if self.early and not self.options.ended:
            for _, _, kind in self.early:
                self.loss.hold(kind)
        elif self.early:
            record, line, _ = self.early[0]
            key = f"unnamed-{first_record_hash(line.data)[:16]}"
            self.current = self.sessions[key] = self._open(key, "", record, line)
        for session in self.sessions.values():
            reply = session.reply
            if reply is not None and (self.options.ended or reply.finished()):
                self._close(session)
            elif reply is not None:
                self.loss.hold("assistant", len(reply.parts))
                for kind in reply.waiting_kinds:
                    self.loss.hold(kind)
            if session.copies:
                self.loss.skip("copy of another session's record", len(session.copies))
            trajectory = session.trajectory
            if self.options.copied and not session.own:
                continue
            if trajectory.sequence > 1 and not (self.options.following and not trajectory.replies):
                trajectory.settle()


def _is_result(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "tool_result"


class ClaudeCode:
    """The importer `claude-code`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        score = 0
        for data in head.split(b"\n")[:60]:
            if score >= 90 or not data.startswith(b"{"):
                continue
            if b'"sessionId"' in data and (b'"uuid"' in data or b'"type"' in data):
                score = max(score, 90)
            elif (b'"leafUuid"' in data and b'"summary"' in data) or b'"type":"file-history-snapshot"' in data:
                score = max(score, 80)
            elif b'"type":"assistant"' in data and b'"message"' in data and b'"uuid"' in data:
                score = max(score, 85)
        return score

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        head = source.head()
        if not head.strip():
            raise BadSource(source.name, "", "is empty: no Claude Code session in it")
        if not self.sniff(head, source.name):
            what = "is no Claude Code session (no record with a sessionId near its start)"
            raise BadSource(source.name, "line 1", what)
        yield from Reader(source, options, loss).read()

    def opening(self, head: bytes) -> str:
        """Return the id of the first reply, which resumed and forked copies repeat."""
        return opening_of(head)

    def lineage(self, source: Source) -> Lineage:
        """Return the sessions of a file and the identities of its records."""
        return lineage_of(source)


IMPORTER: Final = ClaudeCode()
