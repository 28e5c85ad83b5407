"""Every nested state comes back bit for bit, or is refused with the place and the type."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mimex.train.checkpoint import load, save
from mimex.train.packing import DTYPES


def assert_same(a: Any, b: Any) -> None:
    """Equal in type, structure and every bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        bits = [x.clone(memory_format=torch.contiguous_format).reshape(-1) for x in (a, b)]
        assert torch.equal(*(x.view(torch.uint8) for x in bits))
    elif isinstance(a, np.ndarray | np.generic):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    else:
        assert repr(a) == repr(b)  # tells -0.0 from 0.0, and nan equals nan


def round_trip(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    save(folder / "x.safetensors", state)
    return load(folder / "x.safetensors")


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)], ids=str)
def test_tensors_of_every_dtype_and_shape_come_back(tmp_path, dtype, shape):
    tensor = torch.arange(6).resize_(shape).to(dtype)
    assert_same(round_trip(tmp_path, {"x": tensor}), {"x": tensor})


def test_arrays_scalars_and_plain_values_keep_their_types(tmp_path):
    state = {
        "bool": np.array([[True, False]]),
        "images": np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2),
        "nothing": np.zeros((4, 0), np.int64),
        "one": np.array(7, dtype=np.int64),
        "scalars": [np.float64(0.1), np.int32(-3), np.bool_(True), np.float32(np.nan)],
        "plain": [None, True, 0, -1, 0.1, -0.0, 1e-320, "x", "", "\ud800\x00é", (), [], {}],
        "not finite": [float("nan"), float("inf"), -float("inf")],
        "tuple": (1, (2.5, [torch.ones(2, dtype=torch.bfloat16)])),
        "looks like ours": {"tensor": "/bool", "dict": {"float": "nan"}, "__metadata__": "x"},
    }
    assert_same(round_trip(tmp_path, state), state)


def test_nan_payloads_and_signed_zeros_of_arrays_keep_their_bits(tmp_path):
    bits = torch.tensor([0x7FC00001, -0x400000 + 5, -0x80000000], dtype=torch.int64).int()
    assert_same(round_trip(tmp_path, {"x": bits.view(torch.float32)})["x"].view(torch.int32), bits)


def test_keys_that_would_make_the_same_path_stay_apart(tmp_path):
    one, two, three = (torch.full((1,), float(i)) for i in (1, 2, 3))
    state = {"a/b": one, "a": {"b": two, "": one}, "a%2Fb": three, "": two, "\ud800": three}
    assert_same(round_trip(tmp_path, state), state)


def test_views_and_shared_memory_are_saved_as_they_look(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    table = np.arange(6).reshape(2, 3)
    state = {"whole": whole, "again": whole, "turned": whole.T, "row": whole[1]}
    state |= {"flipped": table[:, ::-1], "frozen": np.broadcast_to(np.float32(2), (3, 2))}
    assert_same(round_trip(tmp_path, state), state)


def test_what_is_loaded_can_be_written_to_and_is_aligned_as_fresh_tensors_are(tmp_path):
    state = {f"w{n}": torch.ones(n) for n in range(1, 6)} | {"array": np.ones(3)}
    loaded = round_trip(tmp_path, state)
    loaded["w3"] += 1
    loaded["array"][0] = 5
    assert loaded["w3"].tolist() == [2, 2, 2]
    assert loaded["array"].tolist() == [5, 1, 1]
    assert all(loaded[f"w{n}"].data_ptr() % 64 == 0 for n in range(1, 6))


def test_generators_continue_their_streams(tmp_path):
    numpy_generator = np.random.default_rng(3)
    torch_generator = torch.Generator().manual_seed(3)
    numpy_generator.random(5)
    state = {
        "numpy": numpy_generator.bit_generator.state,
        "torch": torch_generator.get_state(),
    }
    loaded = round_trip(tmp_path, state)
    assert loaded["numpy"]["state"]["state"] > 2**64  # 128 bits do not fit a float
    other, other_torch = np.random.default_rng(0), torch.Generator()
    other.bit_generator.state = loaded["numpy"]
    other_torch.set_state(loaded["torch"])
    assert other.random() == numpy_generator.random()
    expected = torch.rand(4, generator=torch_generator)
    assert torch.equal(torch.rand(4, generator=other_torch), expected)


def test_modules_and_parameters_come_back_as_plain_dicts_of_tensors(tmp_path):
    network = torch.nn.Linear(3, 2)
    state = {"state_dict": network.state_dict(), "direct": network.weight}
    loaded = round_trip(tmp_path, state)
    assert type(loaded["state_dict"]) is dict
    network.load_state_dict(loaded["state_dict"])
    assert torch.equal(loaded["direct"], network.weight)
    assert not loaded["direct"].requires_grad


arrays = hnp.arrays(
    st.sampled_from(["?", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=3),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text(st.characters())
    | arrays
    | arrays.map(lambda a: torch.from_numpy(a.copy()))
    | arrays.filter(lambda a: a.ndim == 0).map(lambda a: a[()])
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(st.characters(), max_size=4), trees, max_size=4))
def test_any_nested_state_comes_back(tmp_path_factory, state):
    assert_same(round_trip(tmp_path_factory.getbasetemp(), state), state)


class Pair(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"optimizer": {"moments": {0: 1}}}, ["state/optimizer/moments", "key 0", "int"]),
        ({"a": [1, {2}]}, ["state/a/1", "a set"]),
        ({"a": np.array(["x"])}, ["state/a", "'<U1'"]),
        ({"a": np.array([None])}, ["state/a", "'|O'"]),
        ({"a": np.zeros(2, ">f4")}, ["state/a", "'>f4'", "native byte order"]),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, ["state/a", "complex128"]),
        ({"a": torch.eye(2).to_sparse()}, ["state/a", "sparse"]),
        ({"a": np.ma.masked_array([1, 2], [0, 1])}, ["state/a", "MaskedArray"]),
        ({"a": Pair(1)}, ["state/a", "Pair"]),
        ({"a": lambda: 0}, ["state/a", "function"]),
    ],
)
def test_what_cannot_come_back_the_same_is_refused_by_place_and_type(tmp_path, state, words):
    with pytest.raises(TypeError) as caught:
        save(tmp_path / "x", state)
    assert all(word in str(caught.value) for word in words), caught.value
    assert list(tmp_path.iterdir()) == []
