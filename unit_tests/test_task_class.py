"""Tasks as classes that declare their streams and state, run as in a Spark worker."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from samzapy.config.values import OWN_STORES
from samzapy.container.task.entry_time import HostExpiry
from samzapy.container.task.event_time import TaskTime
from samzapy.errors import ConfigError, SamzapyError, TaskError, TaskModuleError
from samzapy.model import clock_entry, timer_entry, window_entry
from samzapy.runtime.job_config import load_job
from samzapy.task import load_task_factory
from samzapy.testing.task_kit import InputMessage, run_task

_HEAD = """
import samzapy as sz

class Order(sz.Struct):
    item: str
    amount: float

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json(Order))
totals = sz.Stream("kafka.totals", key=sz.String, value=sz.Double)
"""
_TOTALS = """
@sz.task(inputs=[orders], outputs=[totals])
class Totals(sz.Task[str, Order]):
    total = sz.value(sz.Double, default=0.0)
    seen = sz.counter()

    def process(self, message, out):
        self.seen.add()
        self.total.set(self.total.get() + message.value.amount)
        out.send(totals, self.total.get(), key=message.key)
"""
_CLASS = "@sz.task(inputs=[orders])\nclass T(sz.Task):\n"
_PROPERTIES = "job.name=job\nsystems.kafka.bootstrap.servers=localhost:9092\nlocal.store.dir=state\n"


def a_job(tmp_path: Path, text: str, properties: str = "") -> Path:
    path = tmp_path / "job.py"
    path.write_text(_HEAD.lstrip() + dedent(text).lstrip())
    path.with_suffix(".properties").write_text(_PROPERTIES + properties)
    return path


def an_order(key: str, amount: float) -> tuple[str, dict[str, object]]:
    return key, {"item": "x", "amount": amount}


def test_a_class_sums_by_key_in_its_declared_state(tmp_path: Path) -> None:
    run = run_task(a_job(tmp_path, _TOTALS), [an_order("a", 1.5), an_order("b", 2), an_order("a", 3)])

    assert [("a", 1.5), ("b", 2.0), ("a", 4.5)] == [(sent.key, sent.value) for sent in run.sent_to("totals")]
    assert {"a": 4.5, "b": 2.0} == run.state("total")
    assert {"a": 2, "b": 1} == run.state("seen")


def test_a_message_has_the_declared_type_and_its_time(tmp_path: Path) -> None:
    text = """
    texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)

    @sz.task(inputs=[orders], outputs=[texts])
    class Show(sz.Task[str, Order]):
        def process(self, message, out):
            out.send(texts, f"{type(message).__name__} {type(message.value).__name__} {message.time_ms}")
    """

    run = run_task(a_job(tmp_path, text), [InputMessage(key="a", value={"item": "x", "amount": 1}, timestamp_ms=7)])

    assert ["Message Order 7"] == [sent.value for sent in run.outputs]


def test_each_input_has_its_own_handler_and_the_others_use_process(tmp_path: Path) -> None:
    text = """
    refunds = sz.Stream("kafka.refunds", key=sz.String, value=sz.Double)
    others = sz.Stream("kafka.others", key=sz.String, value=sz.Long)

    @sz.task(inputs=[orders, refunds, others], outputs=[totals])
    class Balance(sz.Task[str, int]):
        balance = sz.value(sz.Double, default=0.0)

        @orders.each
        def ordered(self, message, out):
            self.balance.set(self.balance.get() + message.value.amount)

        @refunds.each
        def refunded(self, message, out):
            self.balance.set(self.balance.get() - message.value)

        def process(self, message, out):
            out.send(totals, self.balance.get(), key=message.key)
    """
    messages = [
        InputMessage(key="a", value={"item": "x", "amount": 10}),
        InputMessage(key="a", value=4.0, stream="kafka.refunds"),
        InputMessage(key="a", value=1, stream="kafka.others"),
    ]

    run = run_task(a_job(tmp_path, text), messages)

    assert [6.0] == [sent.value for sent in run.outputs]


@pytest.mark.parametrize(("line", "scheme"), [("", "cogroup"), ("task.partition.scheme=max", "max")])
def test_inputs_that_share_state_meet_in_one_task_unless_the_properties_differ(
    tmp_path: Path, line: str, scheme: str
) -> None:
    job = a_job(tmp_path, _TOTALS.replace("inputs=[orders]", "inputs=[orders, totals]"), f"{line}\n")

    config, _ = load_job(job, None, [], {})

    assert scheme == config.partition_scheme


def test_inputs_without_state_are_read_by_tasks_of_their_own(tmp_path: Path) -> None:
    job = a_job(
        tmp_path,
        "@sz.task(inputs=[orders, totals])\nclass T(sz.Task):\n    def process(self, message, out): pass",
    )

    assert "max" == load_job(job, None, [], {})[0].partition_scheme


def test_a_function_may_declare_its_streams_too(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders], outputs=[totals])
    def copy(message, out, context):
        out.send(totals, message.value.amount, key=message.key)
    """

    assert [2.0] == [sent.value for sent in run_task(a_job(tmp_path, text), [an_order("a", 2)]).outputs]


def test_init_and_close_are_called_and_context_is_there_from_init_on(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders], outputs=[totals])
    class Task(sz.Task[str, Order]):
        def init(self, context):
            self.size = float(len(self.context.task_name))

        def process(self, message, out):
            assert self.context.task_name
            out.send(totals, self.size, key=message.key)

        def close(self):
            open(__file__ + ".closed", "w").close()
    """
    job = a_job(tmp_path, text)

    assert [11.0] == [sent.value for sent in run_task(job, [an_order("a", 2)]).outputs]
    assert (tmp_path / "job.py.closed").exists()


def test_state_of_scope_task_belongs_to_no_key(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders], outputs=[totals])
    class Task(sz.Task[str, Order]):
        seen = sz.counter(scope="task")

        def process(self, message, out):
            out.send(totals, float(self.seen.add()), key=message.key)
    """

    run = run_task(a_job(tmp_path, text), [an_order("a", 2), an_order("b", 2)])

    assert [1.0, 2.0] == [sent.value for sent in run.outputs]


def test_cleared_state_has_its_default_again(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders], outputs=[totals])
    class Task(sz.Task[str, Order]):
        total = sz.value(sz.Double, default=0.5)
        seen = sz.counter()

        def process(self, message, out):
            self.total.set(9.0), self.seen.add(5)
            self.total.clear(), self.seen.clear()
            out.send(totals, self.total.get() + self.seen.get(), key=message.key)
    """

    run = run_task(a_job(tmp_path, text), [an_order("a", 2)])

    assert [0.5] == [sent.value for sent in run.outputs]
    assert {} == run.state("total") == run.state("seen")


_MAPS = """
texts = sz.Stream("kafka.texts", key=sz.String, value=sz.Json())

@sz.task(inputs=[texts], outputs=[texts])
class Task(sz.Task[str, str]):
    numbers = sz.map(sz.Long, sz.String{scope})
    pairs = sz.map((sz.String, sz.Timestamp), sz.Json())
    queue = sz.list(sz.String)

    def process(self, message, out):
        result = eval(message.value, {{"self": self, "message": message}})
        out.send(texts, list(result) if hasattr(result, "__next__") else result, key=message.key)
"""


def results_of(tmp_path: Path, *expressions: str | tuple[str, str], scope: str = "") -> list[object]:
    job = a_job(tmp_path, _MAPS.format(scope=scope))
    messages = [one if isinstance(one, tuple) else ("a", one) for one in expressions]
    return [sent.value for sent in run_task(job, messages).outputs]


def test_a_map_is_read_in_the_order_of_its_sub_keys_with_the_writes_of_the_message(tmp_path: Path) -> None:
    put = "[self.numbers.put(n, str(n)) for n in (5, -300, 0, 70000, -1)]"

    results = results_of(
        tmp_path,
        f"({put}, [n for n, _ in self.numbers.items()])[1]",
        ("b", "self.numbers.items()"),
        "self.numbers.items(first=-1, last=5)",
        "self.numbers.items(last=-1, reverse=True)",
        "self.numbers.last(2)",
        "(self.numbers.delete(0), self.numbers.put(7, 'seven'), self.numbers.last(9))[2]",
        "self.numbers.get(7)",
        "self.numbers.get(0)",
        "(self.numbers.delete_range(first=6), self.numbers.items())[1]",
        "self.numbers.clear()",
        "self.numbers.items()",
    )

    assert [
        [-300, -1, 0, 5, 70000],
        [],
        [[-1, "-1"], [0, "0"], [5, "5"]],
        [[-1, "-1"], [-300, "-300"]],
        [[5, "5"], [70000, "70000"]],
        [[-300, "-300"], [-1, "-1"], [5, "5"], [7, "seven"], [70000, "70000"]],
        "seven",
        None,
        [[-300, "-300"], [-1, "-1"], [5, "5"]],
        None,
        [],
    ] == results


def test_a_map_of_many_entries_is_read_and_removed_in_pages(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        "[self.numbers.put(n, 'x') for n in range(350)] and 1",
        "[n for n, _ in self.numbers.items(first=1)]",
        "[n for n, _ in self.numbers.items(reverse=True)]",
        "self.numbers.delete_range(last=299)",
        "[n for n, _ in self.numbers.items()]",
    )

    assert [1, list(range(1, 350)), list(range(349, -1, -1)), 300, list(range(300, 350))] == results


def test_sub_keys_can_be_tuples(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        "[self.pairs.put(pair, 1) for pair in (('b', 1), ('a', 2), ('ab', 1), ('a', 1))] and 1",
        "[sub_key for sub_key, _ in self.pairs.items()]",
        "[sub_key for sub_key, _ in self.pairs.items(first=('a', 2), last=('ab', 9))]",
    )

    assert [1, [["a", 1], ["a", 2], ["ab", 1], ["b", 1]], [["a", 2], ["ab", 1]]] == results


def test_a_list_keeps_the_order_and_gives_its_oldest_values(tmp_path: Path) -> None:
    results = results_of(
        tmp_path,
        "[self.queue.append(text) for text in 'abcd'] and 1",
        "(self.queue.pop_first(), len(self.queue), list(self.queue))",
        ("b", "(len(self.queue), list(self.queue), self.queue.pop_first(3))"),
        "(self.queue.append('e'), self.queue.pop_first(2), list(self.queue))[1:]",
        "(self.queue.clear(), len(self.queue), bool(self.queue))[1:]",
        "(self.queue.append('f'), list(self.queue))[1]",
    )

    assert [1, [["a"], 3, ["b", "c", "d"]], [0, [], []], [["b", "c"], ["d", "e"]], [0, False], ["f"]] == results


def test_a_map_of_scope_task_belongs_to_no_key(tmp_path: Path) -> None:
    results = results_of(tmp_path, "self.numbers.put(1, 'a')", ("b", "self.numbers.items()"), scope=', scope="task"')

    assert [None, [[1, "a"]]] == results


def test_the_state_of_a_run_shows_maps_by_sub_key_and_lists_by_number(tmp_path: Path) -> None:
    job = a_job(tmp_path, _MAPS.format(scope=""))

    run = run_task(job, [("a", "(self.numbers.put(2, 'x'), self.numbers.put(-2, 'y'), self.queue.append('q'))")])

    assert {"a": {-2: "y", 2: "x"}} == run.state("numbers")
    assert {"a": {0: "q"}} == run.state("queue")


def test_a_failed_message_leaves_maps_and_lists_unchanged(tmp_path: Path) -> None:
    settings = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.dead"}
    job = a_job(tmp_path, _MAPS.format(scope=""))
    change = (
        "(self.numbers.put(1, 'new'), self.numbers.delete(1), self.numbers.put(3, 'c'), self.numbers.delete(2), "
        "self.queue.append('r'), self.queue.pop_first()"
    )

    run = run_task(
        job,
        [
            ("a", "(self.numbers.put(1, 'a'), self.numbers.put(2, 'b'), self.queue.append('q'))"),
            ("a", f"{change}, 1 / 0)"),
            ("a", "(list(self.numbers.items()), list(self.queue))"),
        ],
        settings=settings,
    )

    assert [[[[1, "a"], [2, "b"]], ["q"]]] == [sent.value for sent in run.sent_to("texts")][1:]
    assert {"a": {1: "a", 2: "b"}} == run.state("numbers")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("self.numbers.put('1', 'a')", "serde long: wanted int or None, found str"),
        ("self.numbers.put(None, 'a')", "serde long: wanted a sub-key, found None"),
        ("self.numbers.put('', 'a')", "serde long: wanted int or None, found str"),
        ("self.numbers.get('')", "serde long: wanted int or None, found str"),
        ("self.numbers.delete('')", "serde long: wanted int or None, found str"),
        ("list(self.numbers.items(first=''))", "serde long: wanted int or None, found str"),
        ("list(self.numbers.items(last=''))", "serde long: wanted int or None, found str"),
        ("self.pairs.put('', 1)", "wanted a tuple of 2, found ''"),
        ("self.context.store('queue').put('a')", "serde long: wanted int or None, found str"),
        ("self.numbers.put(1, 2)", "serde string: wanted str or None, found int"),
        ("self.numbers.put(1, None)", "store numbers: wanted a value, found None"),
        ("self.pairs.put(('x' * 300, 1), 2)", "wanted a sub-key of at most 255 bytes, found 310"),
        ("self.pairs.get(('x',))", r"wanted a tuple of 2, found \('x',\)"),
    ],
)
def test_a_wrong_sub_key_or_value_fails_the_message_with_its_reason(
    tmp_path: Path, expression: str, reason: str
) -> None:
    with pytest.raises(TaskError, match=reason):
        results_of(tmp_path, expression)


def test_an_empty_text_is_a_sub_key_of_a_map_by_text(tmp_path: Path) -> None:
    text = """
    texts = sz.Stream("kafka.texts", key=sz.String, value=sz.String)

    @sz.task(inputs=[texts])
    class Task(sz.Task[str, str]):
        counts = sz.map(sz.String, sz.Long)

        def process(self, message, out):
            self.counts.put(message.value, (self.counts.get(message.value) or 0) + 1)
            if message.value == "x":
                self.counts.delete("")
    """

    two, removed = (
        run_task(a_job(tmp_path, text), [("a", value) for value in values]) for values in (["", ""], ["", "x"])
    )

    assert ({"a": {"": 2}}, {"a": {"x": 1}}) == (two.state("counts"), removed.state("counts"))


def test_entries_of_a_map_are_not_read_after_their_message(tmp_path: Path) -> None:
    put = "[self.numbers.put(n, 'x') for n in range(200)]"
    keep = f"({put}, setattr(self, 'kept', self.numbers.items()), next(self.kept))[2]"

    with pytest.raises(TaskError, match="wanted the next entry of store numbers to be called only while"):
        results_of(tmp_path, keep, ("b", "list(self.kept)"))


def test_a_value_that_the_new_type_refuses_names_its_store(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders])
    class Task(sz.Task[str, Order]):
        last = sz.value({serde})

        def process(self, message, out):
            {use}
    """
    with pytest.raises(TaskError, match=r"offset 0.*store last: serde Strange"):
        run_task(
            a_job(
                tmp_path,
                "class Strange:\n    def encode(self, value): return b''\n    def decode(self, raw): return 1 / 0\n"
                + dedent(text).format(serde="Strange()", use="self.last.set(1), self.last.get()"),
            ),
            [an_order("a", 1)],
        )


_OLD_VALUES = """
    tried = sz.Stream("kafka.tried", key=sz.String, value=sz.Json())

    class Old(sz.Struct):
        name: str

    class New(sz.Struct):
        item: str

    class Grown:
        '''The store as a release before wrote it.'''
        def encode(self, value):
            return sz.Json(Old).encode(value)

        def decode(self, raw):
            return {serde}.decode(raw)

    @sz.task(inputs=[orders], outputs=[tried])
    class Task(sz.Task[str, Order]):
        last = sz.value(Grown())

        def process(self, message, out):
            if message.value.amount:
                out.send(tried, self.last.get().item, key=message.key)
            else:
                self.last.set(Old(name="x"))
"""


def test_an_old_value_that_the_new_type_refuses_names_store_task_and_key(tmp_path: Path) -> None:
    job = a_job(tmp_path, dedent(_OLD_VALUES).format(serde="sz.Json(New)"))

    with pytest.raises(TaskError) as failed:
        run_task(job, [an_order("b", 0), an_order("account 7", 0), an_order("account 7", 1)])

    text = str(failed.value)
    assert "store last: " in text and "missing required field `item`" in text
    assert text.startswith("task Partition 0 failed at kafka.orders.0 offset 2, key b'account 7': ")


def test_an_upgrade_of_an_old_value_in_a_store_is_tried_first(tmp_path: Path) -> None:
    serde = "sz.Json(New, upgrade=lambda old: New(item=old['name']))"
    job = a_job(tmp_path, dedent(_OLD_VALUES).format(serde=serde))

    run = run_task(job, [an_order("a", 0), an_order("a", 1)])

    assert ["x"] == [sent.value for sent in run.outputs]


def test_a_map_of_the_properties_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stores.other.kind: wanted value, found map, .* samzapy.map\(...\)"):
        run_task(a_job(tmp_path, _TOTALS, "stores.other.kind=map\n"), [])


@pytest.mark.parametrize(
    "name", ["_mine.msg.serde=json", "_timers.msg.serde=json", "_clocks.scope=task", "_window.msg.serde=long"]
)
def test_a_store_of_the_properties_whose_name_is_samzapy_s_own_is_refused(tmp_path: Path, name: str) -> None:
    own = name.partition(".")[0]
    function = "@sz.task\ndef task(envelope, collector, context): pass\n"

    with pytest.raises(ConfigError, match=f"stores.{own}: wanted a store whose name does not begin with _"):
        run_task(a_job(tmp_path, function, f"task.inputs=kafka.orders\nstores.{name}\n"), [])


def test_the_stores_that_samzapy_keeps_itself_are_known_to_the_configuration() -> None:
    assert OWN_STORES == {
        timer_entry.STORE: "timer",
        window_entry.STORE: window_entry.KIND,
        clock_entry.STORE: clock_entry.KIND,
    }


@pytest.mark.parametrize("serde", ["long", "json", "string,long"])
def test_a_serde_of_sub_keys_that_only_maps_have_is_refused(tmp_path: Path, serde: str) -> None:
    with pytest.raises(ConfigError, match=r"stores.other.key.serde: wanted string or bytes, found"):
        run_task(a_job(tmp_path, _TOTALS, f"stores.other.key.serde={serde}\n"), [])


@pytest.mark.parametrize(
    ("amount", "error"), [("2**62", "serde long: wanted a number of 8 bytes"), ("1.5", "serde long: wanted int")]
)
def test_a_counter_refuses_a_sum_that_is_no_whole_number_of_64_bits(tmp_path: Path, amount: str, error: str) -> None:
    job = a_job(tmp_path, _TOTALS.replace("seen.add()", f"seen.add({amount})"))

    with pytest.raises(SamzapyError, match=error):
        run_task(job, [an_order("a", 1), an_order("a", 1)])


def test_state_is_bound_to_the_instance_of_one_task(tmp_path: Path) -> None:
    """Two tasks in one process have a store each."""
    factory = load_task_factory(a_job(tmp_path, _TOTALS))
    one, other = factory(), factory()
    stores: list[dict[str, dict[str, int]]] = [{}, {}]
    assert one.bind is not None and other.bind is not None
    for task, own in zip((one, other), stores, strict=True):
        entry = _Entry()
        own["seen"] = entry.values
        time = TaskTime(lambda: 0, None, HostExpiry(lambda: 0))
        task.bind(SimpleNamespace(in_hand={"seen": entry, "total": _Entry()}), None, time)  # type: ignore[arg-type,misc]

    one.process.__self__.seen.add(3)  # type: ignore[attr-defined]

    assert [{"": 3}, {}] == [own["seen"] for own in stores]


class _Entry:
    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    def get(self) -> int | None:
        return self.values.get("")

    def put(self, value: int) -> None:
        self.values[""] = value

    def add(self, amount: int) -> int:
        self.put((self.get() or 0) + amount)
        return self.values[""]


def test_a_serde_of_the_user_s_own_is_used_and_its_error_names_it(tmp_path: Path) -> None:
    text = """
    class Roman:
        def encode(self, value): return "I" .encode() * value
        def decode(self, raw): return {b"I": 1, b"II": 2}[raw]

    numbers = sz.Stream("kafka.numbers", key=sz.String, value=Roman())

    @sz.task(inputs=[numbers], outputs=[numbers])
    class Task(sz.Task[str, int]):
        def process(self, message, out):
            out.send(numbers, message.value + 1, key=message.key)
    """
    job = a_job(tmp_path, text)

    assert [2] == [sent.value for sent in run_task(job, [("a", 1)]).outputs]
    with pytest.raises(TaskError, match=r"serde Roman: KeyError"):
        run_task(job, [("a", 7)])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sz.Stream('orders', key=sz.String, value=sz.Bytes)", "job.py:9: wanted a stream as system.topic"),
        ("sz.Stream('kafka.~o.*', key=sz.Bytes, value=sz.Bytes)", "wanted the name of one topic, found the pattern"),
        (
            "@sz.task\nclass T(sz.Task):\n    def process(self, m, out): pass",
            r"wanted inputs=\[...\] for T, which extends",
        ),
        ("sz.Stream('kafka.o', key=sz.Double, value=sz.Bytes)", "wanted a serde for keys, found double"),
        ("@sz.task(inputs=[])\nclass T(sz.Task): pass", "wanted inputs=.* with one stream or more, found none"),
        (
            "@sz.task(inputs=[orders])\nclass T(sz.Task): pass",
            r"wanted a method process\(self, message, out\), or one marked with .each for kafka.orders; found neither",
        ),
        (
            "@sz.task(inputs=[orders])\nclass T(sz.Task):\n    @totals.each\n    def a(self, message, out): pass",
            "wanted .each of an input of the task, found a marked with that of kafka.totals",
        ),
        (
            "@sz.task(inputs=[orders])\nclass T(sz.Task):\n    @orders.each\n    def a(self, message, out): pass\n"
            "    @orders.each\n    def b(self, message, out): pass",
            "wanted one handler of kafka.orders, found a and b",
        ),
        (
            "again = sz.Stream('kafka.orders', key=sz.String, value=sz.Bytes)\n"
            "@sz.task(inputs=[orders], outputs=[again])\nclass T(sz.Task):\n    def process(self, message, out): pass",
            "job.py:9: wanted one declaration of the stream kafka.orders, found another at job.py:7",
        ),
        (
            "@sz.task(inputs=[orders])\nclass T(sz.Task):\n    def process(self, message, out, context): pass",
            r"wanted T.process\(self, message, out\), found",
        ),
        (
            "@sz.task(inputs=[orders])\nclass T(sz.Task):\n    async def process(self, message, out): pass",
            "wanted a plain function, found T.process with `async`",
        ),
        (
            f"{_CLASS}    _x = sz.counter()\n    def process(self, message, out): pass",
            "wanted a state whose name does not begin with _, found _x",
        ),
        (
            f"{_CLASS}    context = sz.counter()\n    def process(self, message, out): pass",
            "job.py:11: wanted a state with a name of its own, found context, which it would replace in samzapy.Task; "
            "rename it",
        ),
        (f"{_CLASS}    process = sz.value(sz.Long)", "wanted a state with a name of its own, found process"),
        (
            "@sz.task(inputs=[orders], window_ms=5)\nclass T(sz.Task):\n    window = sz.list(sz.Long)\n"
            "    def process(self, message, out): pass",
            "wanted a state with a name of its own, found window",
        ),
        (
            f"{_CLASS}    close = sz.timer('event')\n    def process(self, message, out): pass",
            "wanted a timer with a name of its own, found close",
        ),
        (
            f"{_CLASS}    x = y = sz.counter()\n    def process(self, message, out): pass",
            "wanted one name for a state, found x and y",
        ),
        (
            f"{_CLASS}    x = sz.counter()\n    x = sz.map(sz.Long, sz.Long)\n    def process(self, m, out): pass",
            r"job.py:\d+: wanted one declaration of x, found another at job.py:\d+, which this one would replace",
        ),
        (
            f"{_CLASS}    x = sz.list(sz.Long)\n    x = sz.timer('event')\n    def process(self, m, out): pass",
            "wanted one declaration of x, found another at job.py",
        ),
        (
            "sz.Stream('kafka.o', key=sz.String, value=sz.Json)",
            r"job.py:9: stream kafka.o: wanted a serde as value, found the function samzapy.Json; call it: "
            r"samzapy.Json\(\)",
        ),
        (
            "sz.Stream('kafka.o', key=None, value=sz.Bytes)",
            r"wanted a serde as key, found None; write samzapy.Json\(\) or another serde, or an object with encode",
        ),
        (
            "sz.Stream('kafka.o', key=sz.Bytes, value='json')",
            "wanted a serde as value, found 'json'; write samzapy.Json",
        ),
        ("sz.Stream('kafka.o', key=str, value=sz.Bytes)", "as key, found the class str; write samzapy.String$"),
        (
            "class Own:\n    def encode(self, value): ...\n    def decode(self, raw): ...\nsz.value(Own)",
            r"job.py:12: wanted a serde of values, found the class Own; make an object of it: Own\(\)",
        ),
        ("sz.value(sz.Msgpack)", r"found the function samzapy.Msgpack; call it: samzapy.Msgpack\(T\)"),
        ("sz.list(int)", "job.py:9: wanted a serde of values, found the class int; write samzapy.Long$"),
        ("sz.list(dict[str, int])", r"found dict\[str, int\]; write samzapy.Json\(dict\[str, int\]\)"),
        ("sz.map(sz.Long, Order)", r"wanted a serde of values, found the class Order; write samzapy.Json\(Order\)"),
        ("sz.value(5)", "wanted a serde of values, found int; write"),
        ("sz.value(sz.Json(), default=[])", "wanted a default that does not change, found list"),
        ("sz.map(sz.Double, sz.Bytes)", r"job.py:9: wanted a serde of sub-keys that has an order .*, found double"),
        ("sz.map((sz.Long, sz.Json()), sz.Bytes)", "wanted a serde of sub-keys that has an order .*, found json"),
        ("sz.map((), sz.Bytes)", "wanted a serde of sub-keys, found an empty tuple"),
        ("sz.list(sz.Bytes, scope='all')", "wanted a scope of key, task, broadcast, found 'all'"),
        ("sz.counter(scope='job')", "wanted a scope of key, task, broadcast, found 'job'"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(TaskModuleError, match=reason):
        load_task_factory(a_job(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "systems.kafka.streams.orders.samza.msg.serde=string",
            r"systems.kafka.streams.orders.samza.msg.serde: wanted json, as job.py:7 declares, found string \("
            r".*job.properties:4\); remove it there",
        ),
        ("stores.total.msg.serde=json", "stores.total.msg.serde: wanted double, as job.py:11 declares, found json"),
        ("stores.seen.scope=task", "stores.seen.scope: wanted key, as job.py:12 declares, found task"),
        ("task.inputs=kafka.other", "task.inputs: wanted kafka.orders, as job.py:9 declares, found kafka.other"),
    ],
)
def test_a_property_that_contradicts_the_code_is_refused_with_both_places(
    tmp_path: Path, line: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        run_task(a_job(tmp_path, _TOTALS, f"{line}\n"), [])


@pytest.mark.parametrize(
    ("line", "stream"),
    [
        ("task.broadcast.inputs=kafka.rules", "kafka.rules"),
        ("task.intermediate.by_shop.partitions=4", "kafka.__samzapy-intermediate-job-1-by_shop"),
    ],
)
def test_an_input_of_the_properties_that_no_method_would_handle_is_refused(
    tmp_path: Path, line: str, stream: str
) -> None:
    with pytest.raises(TaskModuleError, match=f"job.py:9: wanted a task that declares every input, found {stream}"):
        run_task(a_job(tmp_path, _TOTALS, f"{line}\n"), [])


def test_every_task_gets_the_messages_of_a_broadcast_input(tmp_path: Path) -> None:
    text = """
    rates = sz.Stream("kafka.rates", key=sz.String, value=sz.Double)

    @sz.task(inputs=[orders], outputs=[totals], broadcast=[rates])
    class Convert(sz.Task[str, Order]):
        rate = sz.value(sz.Double, default=1.0, scope="broadcast")

        @rates.each
        def changed(self, message, out):
            self.rate.set(message.value)

        def process(self, message, out):
            out.send(totals, message.value.amount * self.rate.get(), key=message.key)
    """
    job = a_job(tmp_path, text)

    run = run_task(job, [an_order("a", 2), InputMessage(key="eur", value=1.5, stream="rates"), an_order("a", 2)])

    assert [2.0, 3.0] == [sent.value for sent in run.outputs]
    (broadcast,) = load_job(job, None, [], {})[0].broadcast_inputs
    assert ("kafka.rates", None) == (broadcast.system_stream, broadcast.partitions)


def test_a_property_with_the_same_value_and_other_sizes_are_accepted(tmp_path: Path) -> None:
    job = a_job(tmp_path, _TOTALS, "task.inputs=kafka.orders\nstores.total.changelog.replication.factor=1\n")

    assert 1 == len(run_task(job, [an_order("a", 1)]).outputs)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("out.send(totals, 'text', key=message.key)", "serde double: wanted float or None, found str"),
        (
            "out.send(orders, message.value, key=message.key)",
            "wanted an output that the task declares .kafka.totals.",
        ),
        ("out.send('totals', 1.0)", "wanted an output that the task declares .kafka.totals., found 'totals'"),
        ("self.total.set('text')", "serde double: wanted float or None, found str"),
        ("self.total.set(None)", "store total: wanted a value, found None"),
        ("type(self).total.get()", r"state total \(job.py:\d+\): wanted a use by an instance of its task"),
    ],
)
def test_a_wrong_value_or_stream_fails_the_message_with_a_named_error(tmp_path: Path, body: str, reason: str) -> None:
    text = f"""
@sz.task(inputs=[orders], outputs=[totals])
class Task(sz.Task[str, Order]):
    total = sz.value(sz.Double)

    def process(self, message, out):
        {body}
"""

    with pytest.raises(TaskError, match=reason):
        run_task(a_job(tmp_path, text), [an_order("a", 1)])


def test_state_that_is_used_before_a_message_is_refused(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders])
    class Task(sz.Task[str, Order]):
        total = sz.value(sz.Double)

        def init(self, context):
            self.total.get()

        def process(self, message, out): ...
    """

    with pytest.raises(SamzapyError, match="init"):
        run_task(a_job(tmp_path, text), [an_order("a", 1)])


def test_a_failure_shows_the_user_s_code_and_no_frames_of_samzapy(tmp_path: Path) -> None:
    text = """
    @sz.task(inputs=[orders])
    class Task(sz.Task[str, Order]):
        total = sz.value(sz.Double)

        def process(self, message, out):
            self.total.set("text")
    """

    with pytest.raises(TaskError, match="job.py") as failed:
        run_task(a_job(tmp_path, text), [an_order("a", 1)])

    assert 'self.total.set("text")' in str(failed.value)
    assert "/samzapy/" not in str(failed.value)


def test_bytes_that_are_no_such_value_name_the_type_and_the_field(tmp_path: Path) -> None:
    raw = {"item": "x", "amount": "much"}

    with pytest.raises(TaskError, match=re.escape("serde json(Order): Expected `float`, got `str` - at `$.amount`")):
        run_task(a_job(tmp_path, _TOTALS), [("a", raw)])
