"""How often a job's topics are looked at."""

import logging

from samzapy.adapters.kafka import topic_watch
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.errors import BrokerUnavailableError, ConfigError
from samzapy.model.topic_checks import Cluster
from samzapy.testing.builders import an_input_topic_found
from samzapy.testing.waiting import wait_until


class Topics:
    """A cluster with these topics."""

    def __init__(self, *names, errors=()):
        self.names = names
        self.looks = []
        self._errors = list(errors)

    def topic_names(self):
        return frozenset(self.names)

    def look(self, names, others):
        self.looks.append((tuple(names), tuple(others)))
        if self._errors:
            raise self._errors.pop(0)
        return {name: an_input_topic_found(name, 1) for name in {*names, *others} if name in self.names}

    def cluster(self):
        return Cluster(bootstrap_servers="b:9092", broker_count=1)


def test_the_next_look_comes_sooner_while_a_topic_is_missing(monkeypatch):
    monkeypatch.setattr(topic_watch, "_AGAIN_MS", 500)
    of_all, of_one = [], []
    watches = [
        TopicWatch(Topics("a", "b"), names=lambda: ["a", "b"], put=of_all.append, interval_ms=60_000),
        TopicWatch(Topics("a"), names=lambda: ["a", "b"], put=of_one.append, interval_ms=60_000),
    ]
    for watch in watches:
        watch.start()

    wait_until(lambda: len(of_one) >= 3 and of_all, 30.0, "three looks for the missing topic, and one for none")

    for watch in watches:
        watch.close()
    assert of_one[0].described["b"] is None
    assert len(of_all) == 1


def test_inputs_are_looked_at_without_settings_even_if_missing():
    topics = Topics("own", "input")
    watch = TopicWatch(
        topics, names=tuple, put=print, interval_ms=1_000, names_found=lambda matches: [*sorted(matches), "gone"]
    )

    looked = watch.look(["own"])

    assert [(("own",), ("input", "own", "gone"))] == topics.looks
    assert ["gone"] == [name for name, description in looked.described.items() if description is None]
    assert ["gone", "input", "own"] == sorted(looked.described)


def test_a_refused_look_is_logged_once_and_one_without_an_answer_is_not(caplog):
    refused, away = ConfigError("not allowed"), BrokerUnavailableError("no broker")
    topics, looks = Topics("a", errors=[away, refused, refused]), []
    watch = TopicWatch(topics, names=lambda: ["a"], put=looks.append, interval_ms=500)

    with caplog.at_level(logging.WARNING, topic_watch.__name__):
        watch.start()
        wait_until(lambda: looks, 30.0, "a look after three that failed")

    watch.close()
    assert ["cannot look at the topics, will retry: not allowed"] == [record.message for record in caplog.records]
