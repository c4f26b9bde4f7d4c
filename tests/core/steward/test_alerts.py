"""Health and alerts of a tally: the same facts give the same scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.core.steward.jobs_of_tests import add_jobs, set_jobs

from tallystick.errors import Denied, InvalidInput, InvalidRecord
from tallystick.records import Actor, Alert, AlertLimits
from tallystick.records.times import HOUR, MINUTE
from tallystick.settings import Settings
from tallystick.storage.rows import journal_reading, operation_minutes
from tallystick.storage.rows.operation_minutes import Minute, bucket_of
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_steward import Steward
from tallystick_steward.health import judge
from tallystick_steward.readings import read

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA = Actor(user="ada")


def _remember_many(tally: Tally, actor: Actor, count: int, **fields: Any) -> list[str]:
    items = [{"content": f"Fact {number} of many.", **fields} for number in range(count)]
    return [each.id for each in tally.bind(actor).remember_many(items)]


def test_a_tally_that_is_well_has_full_scores_and_no_alert(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        _remember_many(tally, ADA, 3)
        health = Steward(tally.bind(OPERATOR)).health()
        assert {each.domain: each.score for each in health.domains} == {
            "queue": 100,
            "storage": 100,
            "index": 100,
            "provider": 100,
            "mutation_safety": 100,
        }
        assert health.score == 100
        assert health.alerts == ()
        assert [
            each for each in tally.bind(OPERATOR).operator.doctor() if "alert" in each.check
        ] == []


def test_health_is_the_least_score_of_its_parts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        for memory_id in _remember_many(tally, ADA, 25):
            tally.bind(ADA).forget(memory_id, reason="a sweep")
        steward = Steward(tally.bind(OPERATOR))
        health = steward.health()
        assert health.score == 60
        safety = steward.diagnose("mutation_safety")
        assert safety.losses == {"delete_spikes": 40}


def test_an_agent_of_an_operator_sees_the_scores_alone_and_others_nothing(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        agent = Steward(tally.bind(Actor(user="olga", role="operator", agent="bot")))
        assert agent.health_scores().domains == Steward(tally.bind(OPERATOR)).health().scores
        members = [ADA, Actor(user="ada", agent="bot"), Actor(user="olga", agent="bot")]
        elsewhere = Actor(user="olga", role="operator", organization="acme")
        for actor in (*members, elsewhere):
            with pytest.raises(Denied):
                Steward(tally.bind(actor)).health_scores()
        with pytest.raises(Denied):
            agent.health()


def test_an_unknown_part_names_the_right_ones(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises((InvalidInput, InvalidRecord)) as refused:
        Steward(tally.bind(OPERATOR)).diagnose("queues")  # type: ignore[arg-type]
    assert "'queue', 'storage', 'index', 'provider'" in str(refused.value)


def test_facts_are_for_an_operator(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        for verb in ("health", "alerts"):
            with pytest.raises(Denied):
                getattr(Steward(tally.bind(ADA)), verb)()


def test_a_caller_who_forgets_much_raises_one_alert_until_it_ends(open_tally: OpenTally) -> None:
    told: list[Alert] = []
    with open_tally() as tally:
        ids = _remember_many(tally, ADA, 20)
        end = tally.on_alert(told.append)
        for memory_id in ids:
            tally.bind(ADA).forget(memory_id, reason="a sweep")
        steward = Steward(tally.bind(OPERATOR))
        [alert] = steward.alerts()
        assert (alert.name, alert.facts) == ("delete_spike", {"callers": {"ada": 20}})
        assert [each.name for each in steward.alerts()] == ["delete_spike"]
        assert [each.check for each in tally.bind(OPERATOR).operator.doctor()][-1:] != []
        assert "alerts: delete_spike" in {
            each.check for each in tally.bind(OPERATOR).operator.doctor()
        }
        end()
    assert [(each.name, each.state) for each in told] == [("delete_spike", "raised")]


def test_a_look_reads_what_came_since_the_last_one_and_counts_it_once(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    glances = journal_reading.glances

    def counted(*arguments: Any, **options: Any) -> list[journal_reading.Glance]:
        found = glances(*arguments, **options)
        seen.append(len(found))
        return found

    clock = StepClock()
    with open_tally(clock=clock) as tally:
        bound, memory = tally.bind(ADA), services_of(tally).memory
        ids = _remember_many(tally, ADA, 30)
        for memory_id in ids[:20]:
            bound.forget(memory_id, reason="a sweep")
        # On a server the youngest are read again: they may still be joined by earlier ones.
        clock.advance(seconds=60)
        assert [(each.caller, each.count) for each in read(memory).deletes] == [("ada", 20)]
        monkeypatch.setattr(journal_reading, "glances", counted)
        assert [each.count for each in read(memory).deletes] == [20]
        for memory_id in ids[20:]:
            bound.forget(memory_id, reason="a sweep")
        assert [each.count for each in read(memory).deletes] == [30]
        assert [each.count for each in read(memory).deletes] == [30]
    assert max(seen, default=0) <= 10


def test_a_listener_that_fails_stops_no_alert(open_sqlite: OpenTally) -> None:
    def fail(alert: Alert) -> None:
        raise RuntimeError

    with open_sqlite() as tally:
        tally.on_alert(fail)
        for memory_id in _remember_many(tally, ADA, 20):
            tally.bind(ADA).forget(memory_id, reason="a sweep")
        tally.drain()
        assert [each.name for each in Steward(tally.bind(OPERATOR)).health().alerts] == [
            "delete_spike"
        ]


def test_who_is_given_much_is_named(open_sqlite: OpenTally) -> None:
    settings = Settings(alerts=AlertLimits(reads=50))
    with open_sqlite(settings=settings) as tally:
        _remember_many(tally, ADA, 60)
        for _ in range(3):
            tally.bind(ADA).memories(limit=50)
        services_of(tally).gate.flush()
        [alert] = Steward(tally.bind(OPERATOR)).alerts()
    assert alert.name == "read_spike"
    assert set(alert.facts["callers"]) == {"ada"}  # type: ignore[arg-type]


def test_who_writes_in_the_name_of_others_is_named(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind(Actor(user="bob")).remember("Bob is here.")
        _remember_many(tally, Actor(user="ada", agent="crawler"), 12, speaker="bob")
        [alert] = Steward(tally.bind(OPERATOR)).alerts()
    assert (alert.name, alert.facts) == ("forged_speakers", {"callers": {"ada/crawler": 12}})


def test_jobs_that_die_are_an_alert_and_those_of_one_text_are_not(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ids = _remember_many(tally, ADA, 4)
        services = services_of(tally)
        add_jobs(tally, ids, ADA, error_code="text_refused", state="failed", due_at=None)
        assert Steward(tally.bind(OPERATOR)).alerts() == []
        set_jobs(tally, error_code="lease_expired", state="dead")
        [alert] = Steward(tally.bind(OPERATOR)).alerts()
        assert (alert.name, alert.facts) == ("jobs_dead", {"dead": 4, "percent": 100})
        assert judge(read(services.memory), services.settings.alerts).of("queue").score == 50


def test_slow_calls_of_remember_and_a_busy_database_are_alerts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        services = services_of(tally)
        minute = services.store.clock.now() // MINUTE
        slow = [
            Minute(minute - back, "remember.auto.created", 5, 1, {bucket_of(2_000_000): 5})
            for back in (1, 11, 26)
        ]
        busy = Minute(minute, "modify..busy_tally", 2, 1, {1: 2})
        services.store.database.write(
            lambda tx: operation_minutes.add(tx, [*slow, busy]), name="test"
        )
        assert {each.name for each in Steward(tally.bind(OPERATOR)).alerts()} == {
            "remember_slow",
            "busy",
        }


def test_a_backup_is_asked_for_only_where_a_setting_says_how_often(
    open_sqlite: OpenTally, clock: Any
) -> None:
    with open_sqlite(settings=Settings(alerts=AlertLimits(backup_days=2)), clock=clock) as tally:
        steward = Steward(tally.bind(OPERATOR))
        tally.bind(OPERATOR).operator.freeze(reason="a beginning", what="autonomy")
        assert steward.alerts() == []
        clock.advance(49 * HOUR)
        assert [each.name for each in steward.alerts()] == ["backup_old"]
        assert steward.health().of("storage").losses == {"last_backup": 20}


@pytest.fixture
def clock() -> Any:
    class Clock:
        def __init__(self) -> None:
            self.at = 1_800_000_000_000_000

        def now(self) -> int:
            self.at += 1
            return self.at

        def advance(self, micros: int) -> None:
            self.at += micros

    return Clock()
