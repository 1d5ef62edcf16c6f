"""The job of the drill: the number and the amount of the orders of each customer."""

import time

import samzapy


@samzapy.task
def totals(
    envelope: samzapy.IncomingMessageEnvelope, collector: samzapy.MessageCollector, context: samzapy.TaskContext
) -> None:
    """Count an order for its customer, and send the customer's new totals."""
    order = envelope.value
    time.sleep(order.get("work_ms", 0) / 1000)
    store = context.store("totals")
    seen = store.get() or {"orders": 0, "amount": 0}
    seen["orders"] += 1
    seen["amount"] += order["amount"]
    seen["note"] = order.get("note", "")
    store.put(seen)
    collector.send("totals", {"orders": seen["orders"], "amount": seen["amount"]}, key=envelope.key)


if __name__ == "__main__":
    samzapy.run()
