"""How often a job's topics are looked at."""

from samzapy.adapters.kafka import topic_watch
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.model.topic_checks import Cluster
from samzapy.testing.builders import an_input_topic_found
from samzapy.testing.waiting import wait_until


class Topics:
    """A cluster with these topics."""

    def __init__(self, *names):
        self.names = names

    def topic_names(self):
        return frozenset(self.names)

    def look(self, names):
        return {name: an_input_topic_found(name, 1) for name in names if name in self.names}

    def cluster(self):
        return Cluster(bootstrap_servers="b:9092", broker_count=1)


def test_while_a_topic_is_missing_the_next_look_comes_sooner(monkeypatch):
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
    assert of_one[0].found["b"] is None
    assert len(of_all) == 1
