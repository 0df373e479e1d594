"""A life of a writer in which every kind of call on the disk comes at least once; each step is told when it is durable.

Appends of several trajectories, rotation, a seal, blobs, a lease, mail, an effect sent to another process after its
intent was durable, a clean close. Told on a pipe: `event T N`, `blob SHA`, `lease TOKEN`, `mail ID`, `effect N`.
"""

from __future__ import annotations

import os

from tests.support.events import event_of, info_of
from tests.support.killing import KillingEnv
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.root import Root
from trajlake.runtime.wal.writer_options import WriterOptions

OPTIONS = WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=8192)
TRAJECTORIES = ("a", "b")
EVENTS_EACH = 14
SIZE_BYTES = 600


def blob_of(number: int) -> bytes:
    return f"blob {number} ".encode() * 100


def live(env: KillingEnv, folder: str, told: int, effects: int) -> None:
    """Run the life; `told` and `effects` are descriptors that outlive the process."""

    def tell(*words: object) -> None:
        os.write(told, (" ".join(map(str, words)) + "\n").encode())

    root = Root.open(folder, env)
    writer = root.claim_writer(OPTIONS)
    leases = FileLeaseStore(root.path, env=env)
    claim = Claim(tenant="default", trajectory_id="a", worker="w", writer=writer.writer_id, host="h")
    lease = leases.acquire(claim, 1, expected=None)
    tell("lease", lease.token)
    mail = FileMailStore(root.path, env=env)
    for number in range(EVENTS_EACH):
        if number % 5 == 1:
            tell("blob", root.blobs.put("default", blob_of(number)))
        for trajectory_id in TRAJECTORIES:
            event = event_of(trajectory_id, number, size=SIZE_BYTES)
            writer.append([event], info_of(trajectory_id)).wait()
            tell("event", trajectory_id, number)
        # The intent of effect n is event n of "a": durable, then a call to the outside.
        env.point("dispatch")
        os.write(effects, f"{number}\n".encode())
        tell("effect", number)
        if number % 6 == 3:
            item = MailItem(
                id=f"m{number}", tenant="default", trajectory_id="a", kind="steer", subject="", body={"text": "on"},
                actor="p", actor_known_by="t", posted_at=number,
            )  # fmt: skip
            mail.post(item)
            tell("mail", item.id)
    leases.release(lease)
    writer.close()
