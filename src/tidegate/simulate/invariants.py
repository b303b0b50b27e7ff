"""Checks a simulation after every commit: folds its facts a second time and tests invariants.

    commit ──▶ its events from the feed ──▶ shadow rows ──▶ equal to the live rows that it touched
                                       └──▶ a plain model of hosts ──▶ invariants

The model counts hosts one by one. The production machines keep tallies, which must agree with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidegate.domain.fleet.rows import BUDGETS, Budget
from tidegate.domain.hosts import facts as host_facts, states as host_states
from tidegate.domain.rollouts import names, rows as rollout_rows, states as rollout_states
from tidegate.errors import TidegateError
from tidegate.kernel import codec, folds as kernel_folds, model as kernel_model, replay
from tidegate.kernel.store import Store
from tidegate.simulate.fleet_model import FleetModel
from tidegate.simulate.rollout_model import RolloutModel
from tidegate.simulate.violations import InvariantViolation, demand

PAGE = 1_000


class InvariantChecker:
    """Checks each commit of a simulation right after it is applied.

    Raises, from ``check``:
        InvariantViolation.
    """

    def __init__(self, store: Store, folds: kernel_folds.Folds) -> None:
        self._store = store
        self._folds = folds
        self._shadow = replay.Replay(folds)
        self.model = FleetModel(store)

    def check(self, commit: kernel_model.Commit) -> None:
        """Fold the commit's facts again, compare the rows, and test the invariants."""
        if not commit.facts:
            return
        touched: dict[kernel_model.Key, None] = {}
        rollouts: dict[str, None] = {}
        for event in self._store.feed(after=self._shadow.position, limit=PAGE).events:
            value = self._folds.vocabulary.value(event)
            touched.update(dict.fromkeys(self._folds.keys(value)))
            rollouts[getattr(value, "rollout_id", "")] = None
            self._shadow.step(event)
            self.model.learn(value, event)
        self._compare_rows(touched)
        for rollout_id in rollouts:
            if rollout_id in self.model.rollouts:
                self._check_rollout(rollout_id)
        self._check_budgets(touched)

    def check_answers(
        self, events: Sequence[host_facts.AgentEvent], answers: Sequence[object]
    ) -> None:
        """Demand that accepted reports are in the record: the agent has deleted them.

        Raises:
            InvariantViolation.
        """
        for event, answer in zip(events, answers, strict=True):
            if answer is None or isinstance(answer, TidegateError):
                continue
            record = self.model.record(event.rollout_id, event.host_id)
            if record is None or record.last_event_seq < event.seq:
                raise InvariantViolation(f"RO-11: {event} was accepted, and is not in the record")

    def check_repeats(self, first: Sequence[object], second: Sequence[object]) -> None:
        """Demand that a repeated report is accepted again. Raises: InvariantViolation."""
        for answer, again in zip(first, second, strict=True):
            accepted = answer is not None and not isinstance(answer, TidegateError)
            if accepted and isinstance(again, TidegateError):
                raise InvariantViolation(f"H4: a repeat is refused: {again}")

    def _compare_rows(self, touched: dict[kernel_model.Key, None]) -> None:
        demand(not self._shadow.differences, lambda: str(self._shadow.differences[:3]))
        keys = tuple(touched)
        for key, found in zip(keys, self._store.get(*keys), strict=True):
            wanted = self._shadow.record(key) if key in self._shadow.rows else None
            if found != wanted:
                raise InvariantViolation(f"{key}: the row is {found}, the log says {wanted}")

    def _check_rollout(self, rollout_id: str) -> None:
        model = self.model.rollouts[rollout_id]
        release = rollout_rows.standing_key(names.channel_of(rollout_id), names.ref_of(rollout_id))
        row, shown, standing = self._store.get(
            rollout_rows.tally_key(rollout_id), rollout_rows.rollout_key(rollout_id), release
        )
        assert row is not None, "an opened rollout has its tally"
        assert shown is not None, "an opened rollout has its row"
        assert standing is not None, "a release that was rolled out has its standing"
        tally = codec.decode(row.data, rollout_rows.RolloutTally)
        demand(tally.state is model.state, lambda: f"{tally.state} is not {model.state}")
        demand(tally.current_wave == model.wave, lambda: "the cursor is not in the log")
        self._check_row(model, tally, codec.decode(shown.data, rollout_rows.Rollout))
        word = codec.decode(standing.data, rollout_rows.ReleaseStanding).word
        expected = self.model.words.get((model.channel, model.release))
        demand(word is expected, lambda: f"OP-2: the standing is {word}, the log says {expected}")
        for number, wave in enumerate(tally.waves):
            states = Counter(
                host.state
                for host in model.hosts.values()
                if host.wave == number and not (host.left or host.late)
            )
            # The tally does not count the host of a cancelled order; the model does.
            for state, count in wave.states.items():
                if state is not host_states.HostState.PENDING and states[state] != count:
                    raise InvariantViolation(
                        f"wave {number}: {count} {state} counted, {states[state]} are"
                    )
        self._check_state(model)
        model.halted = (
            tally.halted_at is not None or model.state is rollout_states.RolloutState.FAILED
        )

    def _check_row(
        self, model: RolloutModel, tally: rollout_rows.RolloutTally, row: rollout_rows.Rollout
    ) -> None:
        """Demand that the rollout's row and its tally agree."""
        demand(row.state is tally.state, lambda: f"the row is {row.state}, not {tally.state}")
        demand(row.current_wave == tally.current_wave, lambda: "the row's wave")
        demand(tally.outcome is model.outcome, lambda: "OP-1: an outcome that is not in the log")
        is_over = tally.terminal_at is not None or tally.superseded_at is not None
        demand(is_over is (tally.outcome is not None), lambda: "OP-1: an end without outcome")

    def _check_state(self, model: RolloutModel) -> None:
        match model.state:
            case rollout_states.RolloutState.TERMINAL:
                last = len(model.planned) - 1
                demand(model.unsettled(last) == 0, lambda: "R6: an unsettled host")
                others = model.counted(
                    *(frozenset(host_states.HostState) - {host_states.HostState.CONVERGED})
                )
                demand(others == 0, lambda: f"R6: {others} hosts did not converge")
            case rollout_states.RolloutState.REVERTED:
                flying = model.counted(*(host_states.IN_FLIGHT - {host_states.HostState.PENDING}))
                demand(flying == 0, lambda: f"RO-3: {flying} in flight in Reverted")
                demand(
                    model.counted(host_states.HostState.REVERTED) > 0, lambda: "R10: none reverted"
                )
            case rollout_states.RolloutState.FAILED:
                # A host whose rollback was given up may report late; the rollout stays Failed.
                ended = model.counted(host_states.HostState.FAILED, host_states.HostState.REVERTED)
                demand(ended > 0, lambda: "R10: none failed")
            case _:
                pass

    def _check_budgets(self, touched: dict[kernel_model.Key, None]) -> None:
        for key in touched:
            if key.collection == BUDGETS.name:
                (row,) = self._store.get(key)
                budget = None if row is None else codec.decode(row.data, Budget)
                if budget is not None and budget.in_flight != self.model.taken[budget.budget_id]:
                    taken = self.model.taken[budget.budget_id]
                    raise InvariantViolation(
                        f"budget {key.id}: {budget.in_flight} counted, {taken} taken"
                    )
