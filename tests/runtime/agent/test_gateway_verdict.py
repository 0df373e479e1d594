"""A person's *not executed* reaches the gateway, which else would answer *unknown* for that key for ever."""

from __future__ import annotations

from typing import Any

from trajlake.runtime import Call, Retry
from trajlake.runtime.gateway import Gateway

from .conftest import Bench, one_call, plain_agent


def test_a_call_that_a_person_says_never_happened_is_sent_once_more_through_its_gateway(bench: Bench) -> None:
    acted: list[Any] = []

    def service(*request: Any) -> str:
        acted.append(request)
        if len(acted) == 1:
            raise ConnectionError("the line went dead")
        return "done"

    gateway = Gateway(str(bench.folder / "gateway.sqlite"), handler=service)

    def opened() -> Any:
        journal = bench.fresh()

        @journal.tool(effect="external", gateway=gateway, retry=Retry(9), settle_attempts=1)
        def pay(n: int, *, call: Call) -> Any:
            return gateway.send(call, {"n": n})

        return journal

    model = one_call("pay", {"n": 1})
    parked = opened().run(plain_agent(), "t", task=1, model=model)
    assert (parked.status, len(acted)) == ("parked", 1)
    opened().settle("t", parked.waiting_for[0].action_id, executed=False, because="the service has no trace of it")
    assert opened().run(plain_agent(), "t", model=model).status == "completed"
    assert len(acted) == 2
    keys = {intent.key for intent in bench.bodies("ToolIntent")}
    assert len(keys) == 1
    assert bench.bodies("ToolResult")[-1].output == "done"
