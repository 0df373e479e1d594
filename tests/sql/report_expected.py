"""What each report must say of `report_stories`, worked out from the numbers there: times as text, six places.

Columns are in the order of the report's header. Where a sum is not obvious, a comment adds it up.
"""

from __future__ import annotations

from typing import Any, Final

EXPECTED: Final[dict[str, list[tuple[Any, ...]]]] = {
    "approval_queue": [
        ("other", "pay", 1, 1, "2026-11-30T01:01:00+00:00", 3600.0, 3600.0, 0),
    ],
    # waits of 600 s and 60 s: the median is 330, the 95th percentile 60 + 0.95 * 540
    "approval_waits": [
        ("pay", 3, 1, 1, 1, 330.0, 573.0, 660.0),
    ],
    # input of system 0: 1000 2000 2600, 500 900 350, 100, 100, 100 = 7650 over 9 calls; what was rolled back is out
    "by_system": [
        (0, 5, 9, 850.0, 38.888889, 8, 0.888889, 0.166667),
        (1, 1, 1, 200.0, 40.0, 1, 1.0, 1.0),
    ],
    # 200 + 1000 + 2000 + 0 cached of 1000 + 2000 + 2600 + 100
    "cache_hit_share": [
        ("m1", 0, 8, 4, 5700, 3200, None, 0.561404),
        ("m2", 0, 3, 0, None, None, None, None),
        ("m3", 1, 1, 0, None, None, None, None),
        ("unknown", 0, 1, 0, None, None, None, None),
    ],
    "checkpoint_pauses": [
        ("end", 1, 1, 40.0, 40.0, 0.04, 4000, 4000.0),
        ("interval", 1, 1, 10.0, 10.0, 0.01, 1000, 1000.0),
    ],
    "compaction_effects": [
        ("auto", 1, 1, 900.0, 300.0, 0.333333, 900.0, 350.0),
    ],
    # turn 0: 1000 500 100 100 100; turn 1: 2000 900; turn 2: 2600 350
    "context_growth": [
        (0, 0, 0, 5, 100.0, 900.0, 1.0),
        (0, 1, 1, 2, 1450.0, 1945.0, 1.0),
        (0, 2, 3, 2, 1475.0, 2487.5, 1.0),
        (1, 1, 1, 1, 200.0, 200.0, 1.0),
    ],
    # m1: alpha 8310, gamma 110 and epsilon 180 tokens; 0.01 + 0.02 + 0.03 + 0.001 dollars
    "cost_per_success": [
        ("m1", 0, 3, 2, 8600, 0.061, 4300.0, 0.0305),
        ("m2", 0, 1, 0, 1820, None, None, None),
    ],
    # bytes of read: 100 10 1000 2000 4; of pay: "ok" and the settlement's null
    "cut_outputs": [
        ("read", 5, 1, 0.2, 1, 5000.0, 1800.0),
        ("pay", 2, 0, 0.0, 0, None, 4.0),
    ],
    "doubts_by_tool": [
        ("pay", "external", 3, 1, 0, 0, 1, 1, 0, 0, 0.666667),
        ("read", "read", 5, 0, 0, 0, 0, 0, 0, 0, 0.0),
    ],
    "drift_detected": [
        ("model", "model", "switch", 1, 1, "2026-11-30T01:00:00+00:00", "2026-11-30T01:00:00+00:00"),
    ],
    "flaky_verifiers": [("acme", "alpha", "v", "1", 2, 0.0, 1.0)],
    "import_losses": [],
    # alpha's newest reward is 1, gamma's 0.5
    "judged_reward": [
        ("m1", 0, "v", "1", 2, 0.75, 0.353553, 0.5, 1.0, 1.0),
        ("m2", 0, "v", "1", 1, -1.0, None, -1.0, -1.0, 0.0),
    ],
    "largest_outputs": [
        ("acme", "beta", "9.0", "read", 2000, 5000, None),
        ("acme", "beta", "3.0", "read", 1000, None, None),
        ("acme", "alpha", "3.0", "read", 100, None, None),
        ("acme", "alpha", "3.1", "read", 10, None, None),
        ("acme", "alpha", "11.0", "pay", 4, None, None),
        ("acme", "beta", "15.0", "pay", 4, None, None),
        ("other", "delta", "12.0", "read", 4, None, None),
    ],
    # delta's second reply and its context were left behind: 150 + 15 tokens; one event came from a lost lease
    "lost_work": [
        ("2026-11-30", 3, 1, 1, 1, 2, 165, 1, 0, 0),
        ("2026-12-01", 1, 0, 0, 0, 0, 0, 0, 0, 0),
        ("2026-12-02", 1, 0, 0, 0, 0, 0, 0, 0, 0),
    ],
    # m1 kept 50 70 60, 10, 10 tokens on the first day (mean 40) and 80 two days later
    "model_drift": [
        ("m1", "2026-11-30", 5, 40.0, 0.6, 0, None, None),
        ("m1", "2026-12-02", 1, 80.0, 1.0, 1, 2.0, 1.666667),
        ("m2", "2026-12-01", 3, 23.333333, 1.333333, 0, None, None),
        ("m3", "2026-11-30", 1, 40.0, 1.0, 0, None, None),
    ],
    # the rejected attempt of alpha: 2500 + 30 tokens
    "model_retries": [
        ("unknown", 0, 1, 0, 0, 0, 1, 1.0, 0),
        ("m1", 0, 8, 7, 1, 0, 0, 0.125, 2530),
        ("m2", 0, 3, 3, 0, 0, 0, 0.0, 0),
        ("m3", 1, 1, 1, 0, 0, 0, 0.0, 0),
    ],
    "outcomes": [
        ("m1", 0, 3, 0, 2, 0, 0, 1, 0.666667),
        ("m2", 0, 1, 0, 0, 1, 0, 0, 0.0),
        ("several", 1, 1, 1, 0, 0, 0, 0, None),
    ],
    "parallel_calls": [
        ("m1", 0, 4, 0.571429),
        ("m1", 1, 2, 0.285714),
        ("m1", 2, 1, 0.142857),
        ("m2", 1, 2, 0.666667),
        ("m2", 2, 1, 0.333333),
        ("m3", 1, 1, 1.0),
    ],
    "pass_rates": [
        ("acme", '{"text":"do it"}', "v", "1", "m1", 2, 1),
        ("acme", '{"text":"do it"}', "v", "1", "m2", 1, 0),
    ],
    "quarantined": [
        ("superseded", 1, 1, 1, 0),
    ],
    "repeated_calls": [
        ("read", 6, 1, 0.166667, 2, 1),
        ("pay", 3, 0, 0.0, 1, 0),
    ],
    # read: 100 300 600 200 400 ms; pay: 1000 ms (the settlement has no duration)
    "secrets_by_kind": [],
    "slowest_tools": [
        ("read", 5, 1.6, 300.0, 560.0, 600.0, 0.615385),
        ("pay", 1, 1.0, 1000.0, 1000.0, 1000.0, 0.384615),
    ],
    # end_turn of m1: 60 10 10 15 tokens
    "stop_reasons": [
        ("m1", "end_turn", 4, 0.571429, 12.5),
        ("m1", "tool_use", 2, 0.285714, 60.0),
        ("m1", "none", 1, 0.142857, 80.0),
        ("m2", "tool_use", 2, 0.666667, 25.0),
        ("m2", "length", 1, 0.333333, 20.0),
        ("m3", "tool_use", 1, 1.0, 40.0),
    ],
    "sub_agents": [
        ("a:main", "top", 3, 11, 8, 10645, 0.97348, 0.06),
        ("a:sub", "sub_agent", 1, 1, 0, 110, 0.010059, 0.001),
        ("unknown", "top", 1, 1, 1, 180, 0.016461, None),
    ],
    # m1: 1800 + 240 + 180 s of wall time, 2 + 3 + 1 + 0.5 s in the model, 0.1 + 0.3 + 1 s in tools
    "time_shares": [
        ("m1", 0, 3, 2220.0, 6.5, 1.4, 600.0, 0.002928, 0.000631, 0.27027),
        ("m2", 0, 1, 600.0, 0.0, 0.8, 60.0, 0.0, 0.001333, 0.1),
        ("several", 1, 1, 3660.0, 0.0, 0.4, 0.0, 0.0, 0.000109, 0.0),
    ],
    # m1 on the first day: alpha 8100 (the rejected 2500 too), gamma 100, delta 100 + 150 tokens of input
    "tokens_by_model_day": [
        ("2026-11-30", "m1", 0, 7, 1, 8450, 3200, 245, None, 0.061),
        ("2026-11-30", "m3", 1, 1, 0, 200, None, 40, None, None),
        ("2026-11-30", "unknown", 0, 1, 1, None, None, None, None, None),
        ("2026-12-01", "m2", 0, 3, 0, 1750, None, 70, None, None),
        ("2026-12-02", "m1", 0, 1, 0, 100, None, 80, None, None),
    ],
    "tool_errors": [
        ("read", 0, 5, 4, 1, 0, 0, 0.25),
        ("read", 1, 1, 1, 1, 0, 0, 1.0),
        ("pay", 0, 3, 2, 0, 0, 0, 0.0),
    ],
    "tool_retries": [
        ("read", 0, 4, 1, 5, 2, 1, 0.25),
        ("pay", 0, 3, 0, 3, 1, 0, 0.0),
        ("read", 1, 1, 0, 1, 1, 0, 0.0),
    ],
    # alpha 3 turns, 3 actions and 30 minutes; gamma 1, 0 and 4
    "turns_to_success": [
        ("m1", 0, 2, 2.0, 2.9, 1.5, 17.0, 1.0),
        ("m2", 0, 0, None, None, None, None, 3.0),
    ],
}
