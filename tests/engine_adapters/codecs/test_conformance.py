"""What holds of every codec."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from engine_adapters.codecs.codec import Codec
from engine_adapters.codecs.errors import StatesError
from engine_adapters.codecs.header import payload_bytes
from engine_adapters.codecs.slice_shape import DTYPES
from engine_adapters.codecs.values import MAGNITUDE_MAX
from tests.engine_adapters.codecs.states import (
    CODECS,
    LOSSLESS,
    LOSSY,
    SHAPES,
    any_bits,
    codec_id,
    decoded,
    finite_states,
    model_like,
    randomised,
)
from tests.support.untraced import UNTRACED

each_codec = pytest.mark.parametrize("codec", CODECS, ids=codec_id)
each_lossy = pytest.mark.parametrize("codec", LOSSY, ids=codec_id)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

SAME_FOR_ALL_VALUES = {"raw", "int8", "int3"}
"""Codecs whose payloads have one length for a shape and dtype."""


def check_round_trip(codec: Codec, states: Tensor) -> None:
    shape, dtype = tuple(states.shape), states.dtype
    payload = codec.encode(states)
    assert len(payload) <= codec.bytes_max(shape, dtype)
    if codec.name in SAME_FOR_ALL_VALUES:
        assert len(payload) == codec.bytes_max(shape, dtype)
    values = decoded(codec, payload, states)
    if codec.is_lossless:
        assert torch.equal(values.view(torch.uint8), states.contiguous().view(torch.uint8))
    else:
        assert values.isfinite().all()


@each_codec
class TestEveryCodec:
    @each_dtype
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_round_trip(self, codec: Codec, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        check_round_trip(codec, model_like(shape, dtype))

    @each_dtype
    def test_zeros_stay_zeros(self, codec: Codec, dtype: torch.dtype) -> None:
        for shape in SHAPES:
            states = torch.zeros(shape, dtype=dtype)
            check_round_trip(codec, states)
            assert not decoded(codec, codec.encode(states), states).any()

    @each_dtype
    def test_a_constant(self, codec: Codec, dtype: torch.dtype) -> None:
        for shape in SHAPES:
            states = torch.full(shape, -1.7, dtype=dtype)
            check_round_trip(codec, states)
            error = (decoded(codec, codec.encode(states), states) - states).abs().max()
            assert error <= 1.7 / 127

    @UNTRACED
    def test_any_finite_states(self, codec: Codec) -> None:
        @randomised(60, states=finite_states())
        def run(states: Tensor) -> None:
            check_round_trip(codec, states)

        run()

    def test_encoding_leaves_the_states_alone(self, codec: Codec) -> None:
        for shape in SHAPES:
            states = model_like(shape, torch.float32)
            before = states.clone()
            codec.encode(states)
            assert torch.equal(states, before)

    def test_strided_states(self, codec: Codec) -> None:
        wide = model_like((2, 20, 6, 40), torch.bfloat16)
        strided = wide[:, ::2, 1:4, ::3]
        assert codec.encode(strided) == codec.encode(strided.contiguous())

    def test_decoding_into_a_strided_tensor_is_refused(self, codec: Codec) -> None:
        states = model_like((2, 8, 2, 8), torch.float32)
        out = torch.empty(2, 8, 2, 16)[..., ::2]
        with pytest.raises(StatesError, match="contiguous"):
            codec.decode(codec.encode(states), out)

    def test_states_of_no_slice_are_refused(self, codec: Codec) -> None:
        for shape in ((3, 4, 2, 8), (2, 4, 16), (8,), (0, 16), (2, 4, 0, 8)):
            states = torch.zeros(shape)
            for attempt in (
                lambda states=states: codec.encode(states),
                lambda states=states: codec.decode(b"", states),
                lambda shape=shape: codec.bytes_max(shape, torch.float32),
            ):
                with pytest.raises(StatesError):
                    attempt()
        with pytest.raises(StatesError, match="float64"):
            codec.encode(torch.zeros(4, 16, dtype=torch.float64))
        with pytest.raises(StatesError, match="meta"):
            codec.encode(torch.zeros(4, 16, device="meta"))
        with pytest.raises(StatesError, match="bytes"):
            codec.bytes_max((2, 4096, 1024, 1024), torch.float32)

    def test_every_kind_of_payload(self, codec: Codec) -> None:
        states = model_like((2, 20, 3, 33), torch.bfloat16)
        payload = codec.encode(states)
        expected = decoded(codec, payload, states)
        for kind in (bytearray, memoryview, lambda octets: memoryview(bytearray(octets))):
            out = torch.empty_like(states)
            codec.decode(kind(payload), out)
            assert torch.equal(out, expected)

    def test_payloads_at_any_address(self, codec: Codec) -> None:
        states = model_like((2, 20, 3, 33), torch.float32)
        payload = codec.encode(states)
        expected = decoded(codec, payload, states)
        for offset in range(1, 9):
            shifted = memoryview(bytes(offset) + payload)[offset:]
            out = torch.empty_like(states)
            codec.decode(shifted, out)
            assert torch.equal(out, expected)

    def test_states_that_want_gradients(self, codec: Codec) -> None:
        states = model_like((2, 20, 3, 33), torch.float32)
        assert codec.encode(states.clone().requires_grad_()) == codec.encode(states)

    def test_threads_share_a_codec(self, codec: Codec) -> None:
        slices = [model_like((2, 64, 2, 64), torch.bfloat16, number=n) for n in range(8)]
        payloads = [codec.encode(states) for states in slices]
        expected = [
            decoded(codec, payload, states)
            for payload, states in zip(payloads, slices, strict=True)
        ]
        with ThreadPoolExecutor(4) as executor:
            assert list(executor.map(codec.encode, slices * 5)) == payloads * 5
            results = executor.map(decoded, [codec] * 40, payloads * 5, slices * 5)
            for result, values in zip(results, expected * 5, strict=True):
                assert torch.equal(result, values)

    def test_is_a_value(self, codec: Codec) -> None:
        assert copy.deepcopy(codec) == codec
        assert hash(copy.deepcopy(codec)) == hash(codec)

    def test_states_its_bound(self, codec: Codec) -> None:
        assert codec.error_bound.endswith(".")
        assert ("bit for bit" in codec.error_bound) == codec.is_lossless


@pytest.mark.parametrize("codec", LOSSLESS, ids=codec_id)
@each_dtype
def test_lossless_codecs_keep_every_bit(codec: Codec, dtype: torch.dtype) -> None:
    for number, shape in enumerate(SHAPES):
        check_round_trip(codec, any_bits(shape, dtype, number=number))
        special = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0], dtype=dtype)
        states = model_like(shape, dtype)
        states.view(-1)[: special.numel()] = special[: states.numel()]
        check_round_trip(codec, states)


@each_lossy
@each_dtype
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_lossy_codecs_refuse_what_they_cannot_bound(
    codec: Codec, dtype: torch.dtype, value: float
) -> None:
    for shape in SHAPES:
        states = model_like(shape, dtype)
        states.view(-1)[states.numel() // 2] = value
        with pytest.raises(StatesError, match="finite"):
            codec.encode(states)


def test_payloads_say_their_length() -> None:
    for codec in CODECS:
        if codec.name != "raw":
            payload = codec.encode(model_like((2, 20, 3, 33), torch.float32))
            assert payload_bytes(payload + bytes(100)) == len(payload)


@each_lossy
def test_lossy_codecs_refuse_huge_values(codec: Codec) -> None:
    states = model_like((4, 16), torch.float32)
    states[2, 3] = -MAGNITUDE_MAX
    check_round_trip(codec, states)
    states[2, 3] *= 1.01
    with pytest.raises(StatesError, match="lossless"):
        codec.encode(states)


def test_the_greatest_float16_stays_finite() -> None:
    for codec in LOSSY:
        for number in range(20):
            states = model_like((2, 64, 2, 64), torch.float16, number=number) * 30_000
            check_round_trip(codec, states.clamp(-65_504, 65_504))
