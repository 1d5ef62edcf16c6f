"""quix-streams, exactly once; with `--keyed` it counts each key in its store."""

import argparse

from quixstreams import Application


def copy_each(value):
    return value


def count_each(value, state):
    count = state.get("count", 0) + 1
    state.set("count", count)
    return value + b"%d" % count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--commit-s", type=float, default=0.05)
    parser.add_argument("--keyed", action="store_true")
    options = parser.parse_args()
    app = Application(
        broker_address=options.servers,
        consumer_group="plain-quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=options.commit_s,
        state_dir=options.state,
    )
    plain = {"key_serializer": "bytes", "value_serializer": "bytes"}
    given = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
    frame = app.dataframe(app.topic(options.topic, **given))
    frame = frame.apply(count_each, stateful=True) if options.keyed else frame.apply(copy_each)
    frame.to_topic(app.topic(options.output, **plain))
    app.run()


if __name__ == "__main__":
    main()
