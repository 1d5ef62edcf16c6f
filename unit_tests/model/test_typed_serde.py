from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.serde import (
    Bytes,
    Double,
    Integer,
    Json,
    Long,
    Msgpack,
    Serde,
    SerdeError,
    String,
    Timestamp,
    Uuid,
    fault_of,
    name_of,
    named,
)


class Order(msgspec.Struct):
    item: str
    amount: float = 0.0
    more: Order | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    item: str


@dataclass
class Place:
    x: int


class Named(TypedDict):
    name: str


orders = st.builds(Order, st.text(st.characters(codec="utf-8")), st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("make", [Json, Msgpack])
@given(order=orders)
def test_a_struct_is_read_back_unchanged(make: Callable[..., Serde[Order]], order: Order) -> None:
    serde = make(Order)

    assert order == serde.decode(serde.encode(order))


@pytest.mark.parametrize("make", [Json, Msgpack])
@pytest.mark.parametrize(
    ("of", "value"),
    [(Place, Place(1)), (Named, {"name": "a"}), (dict[str, int], {"a": 1}), (list[Place], [Place(2)]), (float, 1)],
)
def test_dataclasses_typed_dicts_and_builtins_have_serdes(
    make: Callable[..., Serde[Any]], of: Any, value: Any
) -> None:
    serde = make(of)

    assert value == serde.decode(serde.encode(value))


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Bytes, b"a"),
        (String, "ä"),
        (Integer, -1),
        (Long, 2**40),
        (Double, 0.5),
        (Timestamp, 7),
        (Uuid, UUID(int=1)),
        (Json(), {"a": [1]}),
    ],
)
def test_a_builtin_serde_has_the_name_of_the_configuration(serde: Serde[Any], value: Any) -> None:
    assert value == serde.decode(serde.encode(value))
    assert serde.encode(value) == named(serde).encode(value)
    assert name_of(serde) == named(serde).name


@pytest.mark.parametrize("serde", [Long, Json(Order), Msgpack(Order)])
def test_none_passes_through_the_runtime_s_form(serde: Serde[Any]) -> None:
    assert (None, None) == (named(serde).encode(None), named(serde).decode(None))


def test_a_none_is_refused_where_a_value_is_declared() -> None:
    with pytest.raises(SerdeError, match="serde long: wanted a value, found None"):
        Long.encode(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("wrap", [lambda order: order, lambda order: Order("b", more=order)])
def test_json_refuses_a_number_that_it_does_not_have(number: float, wrap: Callable[[Order], Order]) -> None:
    """msgspec writes null for it, without a request for that."""
    with pytest.raises(SerdeError, match=r"serde json\(Order\): wanted numbers that JSON has, found NaN or infinity"):
        Json(Order).encode(wrap(Order("a", number)))


def test_msgpack_has_every_number() -> None:
    serde = Msgpack(Order)

    assert float("inf") == serde.decode(serde.encode(Order("a", float("inf")))).amount


def test_a_value_of_another_type_is_refused_with_both() -> None:
    with pytest.raises(SerdeError, match=r"serde json\(Order\): wanted Order, found dict"):
        Json(Order).encode({"item": "a"})  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [Json, Msgpack])
@pytest.mark.parametrize(
    ("of", "value", "reason"),
    [
        (Order, Order("a", "3"), r"Expected `float`, got `str` - at `\$.amount`"),
        (Order, Order("a", 1.0, Order(3)), r"Expected `str`, got `int` - at `\$.more.item`"),
        (Place, Place(2.5), r"Expected `int`, got `float` - at `\$.x`"),
        (dict[str, int], {"a": "b"}, r"Expected `int`, got `str`"),
        (Named, {"nom": "a"}, "missing required field `name`"),
    ],
)
def test_a_value_that_could_not_be_read_again_is_not_written(
    make: Callable[..., Serde[Any]], of: Any, value: Any, reason: str
) -> None:
    with pytest.raises(SerdeError, match=f"wanted a value that can be read again, found one that cannot.*{reason}"):
        make(of).encode(value)


def test_a_value_that_only_an_upgrade_reads_is_written() -> None:
    serde = Json(Place, upgrade=lambda old: Place(int(old["x"])))

    assert Place(2) == serde.decode(serde.encode(Place(2.5)))


@pytest.mark.parametrize("serde", [Json(int), Msgpack(int)])
def test_a_boolean_is_no_number_because_it_could_not_be_read_back(serde: Serde[int]) -> None:
    assert 1 == serde.decode(serde.encode(1))
    with pytest.raises(SerdeError, match=r"\(int\): wanted int, found bool"):
        serde.encode(True)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"item":1}', "Expected `str`, got `int` - at `$.item`"),
        (b"{}", "Object missing required field `item`"),
        (b"{", "Input data was truncated"),
        (b'{"item":"a","amount":NaN}', "JSON is malformed: invalid character"),
        (b"\x1f\x8b\x08", "gzip"),
    ],
)
def test_bytes_that_are_no_such_value_are_refused_with_the_field(raw: bytes, reason: str) -> None:
    with pytest.raises(SerdeError, match=r"serde json\(Order\)") as refused:
        Json(Order).decode(raw)

    assert reason in str(refused.value)


def test_a_depth_that_no_stack_has_is_refused() -> None:
    with pytest.raises(SerdeError):
        Json(list[Any]).decode(b"[" * 100_000)


def test_unknown_fields_are_ignored_unless_the_struct_forbids_them() -> None:
    assert Order("a") == Json(Order).decode(b'{"item":"a","unknown":1}')
    with pytest.raises(SerdeError, match="unknown field `unknown`"):
        Json(Strict).decode(b'{"item":"a","unknown":1}')


def test_an_upgrade_is_tried_only_for_values_that_do_not_fit() -> None:
    tried: list[Any] = []

    def upgrade(old: Any) -> Order:
        tried.append(old)
        return Order(old["name"])

    serde = Json(Order, upgrade=upgrade)

    assert Order("a") == serde.decode(b'{"item":"a"}')
    assert Order("b") == serde.decode(b'{"name":"b"}')
    assert [{"name": "b"}] == tried


def test_an_upgrade_that_makes_something_else_is_refused_with_the_first_reason() -> None:
    serde = Json(Order, upgrade=lambda old: old)

    with pytest.raises(
        SerdeError, match=r"missing required field `item`.*upgrade was tried: wanted Order of it, found"
    ):
        serde.decode(b'{"name":"b"}')


def test_an_upgrade_that_raises_is_an_error_of_the_serde() -> None:
    serde = named(Json(Order, upgrade=lambda old: Order(old["nothing"])))

    with pytest.raises(SerdeError, match=r"serde json\(Order\): KeyError: 'nothing'"):
        serde.decode(b'{"name":"b"}')


class Broken:
    def encode(self, value: Any) -> Any:
        if value == "raise":
            raise RuntimeError("no")
        return "text"

    def decode(self, raw: bytes) -> Any:
        raise RuntimeError("no")


def test_whatever_a_serde_of_the_user_s_raises_is_a_serde_error_with_its_name() -> None:
    serde = named(Broken(), is_key=True)

    for call, given_ in ((serde.encode, "raise"), (serde.decode, b"x")):
        with pytest.raises(SerdeError, match=r"serde Broken: RuntimeError: no \(the key\)"):
            call(given_)  # type: ignore[operator]
    with pytest.raises(SerdeError, match=r"serde Broken: wanted bytes of encode, found str \(the key\)"):
        serde.encode("a")


class WithoutMethods:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize(("is_key", "where"), [(False, "$"), (True, r" \(the key\)$")])
def test_a_serde_whose_methods_cannot_be_looked_up_fails_with_a_serde_error(is_key: bool, where: str) -> None:
    serde = named(WithoutMethods(), is_key=is_key)

    with pytest.raises(SerdeError, match=f"serde WithoutMethods: RuntimeError: no encode{where}"):
        serde.encode("a")
    with pytest.raises(SerdeError, match=f"serde WithoutMethods: RuntimeError: no decode{where}"):
        serde.decode(b"a")


class Static:
    @staticmethod
    def encode(value: str) -> bytes:
        return value.encode()

    @classmethod
    def decode(cls, raw: bytes) -> str:
        return raw.decode()


@pytest.mark.parametrize(
    "serde", [Bytes, String, Uuid, Json(), Json(Order), Msgpack(Order), Broken(), Static, Static(), msgspec.json]
)
def test_any_object_with_encode_and_decode_is_a_serde(serde: object) -> None:
    assert "" == fault_of(serde)
