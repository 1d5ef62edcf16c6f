"""Delays per aircraft: number of flights, mean and worst departure delay, kept up to date with every flight.

Run it against any Kafka, with the environment's bin first in PATH:

    spark-submit examples/flight_delays.py --set systems.kafka.bootstrap.servers=localhost:9092
"""

import samzapy


@samzapy.task
def flight_delays(envelope, collector, context):
    """Count a flight for its aircraft and send the aircraft's new figures; flights without a tail number go aside."""
    flight = envelope.value
    if envelope.key is None:
        collector.send("flights-without-tailnum", flight)
        return
    store = context.store("delays")
    seen = store.get() or {"flights": 0, "delayed": 0, "sum_min": 0, "worst_min": None}
    seen["flights"] += 1
    delay_min = flight["dep_delay"]
    if delay_min is not None:
        seen["delayed"] += 1
        seen["sum_min"] += delay_min
        seen["worst_min"] = delay_min if seen["worst_min"] is None else max(seen["worst_min"], delay_min)
    store.put(seen)
    mean_min = seen["sum_min"] / seen["delayed"] if seen["delayed"] else None
    collector.send("delays-by-aircraft", {"tailnum": envelope.key, "mean_min": mean_min, **seen}, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
