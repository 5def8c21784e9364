"""All labs with their sizes; ``tests/support/lab_table.py`` writes their table."""

from functools import partial

from tests.support.scale import EVERY, Lab

_disconnects = partial(
    Lab,
    promise="client killed at any point",
    file="engine_adapters/server/http/test_disconnects.py",
)
DISCONNECTS = _disconnects(
    cases="clients of a model server that go away", smoke=8, quick=200, long=2_000
)
CLIENTS_AT_ONCE = _disconnects(cases="of these clients at a time", smoke=8, quick=64, long=64)
TIMED_DISCONNECTS = Lab(
    promise="client killed at any point",
    file="engine_adapters/server/http/test_times.py",
    cases="clients of a model server that go away, timed",
    smoke=6,
    quick=64,
    long=None,
)
_random_kills = partial(
    Lab, promise="SIGKILL of the daemon at any moment", file="faults/kill/test_random_kills.py"
)
CHURN_KILLS = _random_kills(cases="kills under load", smoke=6, quick=60, long=300)
EVICTING_KILLS = _random_kills(cases="kills of a full store", smoke=4, quick=40, long=200)
_call_kills = partial(
    Lab, promise="SIGKILL of the daemon at any moment", file="faults/kill/test_call_kills.py"
)
CALL_KILLS = _call_kills(cases="system calls of each moment", smoke=2, quick=10, long=EVERY)
RING_CALL_KILLS = _call_kills(
    cases="system calls of a put by io_uring", smoke=None, quick=8, long=EVERY
)
RING_CALL_KILLS_ELSEWHERE = _call_kills(
    cases="system calls of all other moments by io_uring", smoke=None, quick=None, long=EVERY
)
TRACER_KILLS = _call_kills(cases="moments as the tracer lets go", smoke=None, quick=2, long=None)
_client_kills = partial(
    Lab, promise="client killed at any point", file="faults/kill/test_client_kills.py"
)
CLIENT_CALL_KILLS = _client_kills(
    cases="system calls of each action", smoke=None, quick=25, long=EVERY
)
CLIENT_KILLS = _client_kills(cases="random moments", smoke=5, quick=40, long=1_000)
TIMED_STARTS = Lab(
    promise="SIGKILL of the daemon at any moment",
    file="faults/kill/test_times.py",
    cases="kills with starts that are timed",
    smoke=3,
    quick=20,
    long=None,
)
TIMED_RETURNS = Lab(
    promise="client killed at any point",
    file="faults/kill/test_times.py",
    cases="random moments with timed returns",
    smoke=3,
    quick=20,
    long=None,
)
_open_sequences = partial(
    Lab, promise="SIGKILL of the daemon at any moment", file="system/test_open_sequences.py"
)
WALKED_KILLS = _open_sequences(
    cases="kills, each after a random walk of sequences", smoke=2, quick=6, long=60
)
WALK_STEPS = _open_sequences(cases="steps of each walk", smoke=20, quick=30, long=100)
DURABLE_PUTS = Lab(
    promise="SIGKILL of the daemon at any moment",
    file="system/test_durability.py",
    cases="numbers of puts before a kill",
    smoke=1,
    quick=3,
    long=None,
)
_power_cuts = partial(Lab, promise="power loss at any moment", file="faults/power/test_power.py")
POWER_STATES = _power_cuts(cases="states that a cut leaves", smoke=200, quick=3_500, long=15_000)
BREAKAGES = _power_cuts(cases="broken products that it finds", smoke=None, quick=1, long=EVERY)
FLIPS = Lab(
    promise="any flipped bit on media",
    file="faults/media/test_flips.py",
    cases="flips",
    smoke=5_000,
    quick=50_000,
    long=500_000,
)
_media_machine = partial(
    Lab,
    promise="torn, misdirected, lost, stale, flipped write",
    file="faults/media/test_machine.py",
)
STORE_WALKS = _media_machine(cases="runs of each state machine", smoke=3, quick=15, long=300)
STORE_WALK_STEPS = _media_machine(cases="steps of each run", smoke=40, quick=40, long=100)
DAMAGED_READS = Lab(
    promise="torn, misdirected, lost, stale, flipped write",
    file="faults/media/test_damage.py",
    cases="ways to read what was damaged",
    smoke=1,
    quick=EVERY,
    long=None,
)
NTH_CALLS = Lab(
    promise="EIO on read, on flush, on one copy of a superblock",
    file="faults/media/test_nth_call.py",
    cases="calls from one that fails to the next one that does",
    smoke=20,
    quick=6,
    long=1,
)
CUTS = Lab(
    promise="a put cut at any page",
    file="faults/media/test_cut_points.py",
    cases="pages from one cut to the next",
    smoke=6,
    quick=1,
    long=None,
)
MESSAGES = Lab(
    promise="hostile client",
    file="faults/clients/test_messages.py",
    cases="random messages to each method",
    smoke=4,
    quick=25,
    long=400,
)
PARSED = Lab(
    promise="hostile client",
    file="faults/clients/test_fuzz.py",
    cases="inputs of each parser",
    smoke=20,
    quick=150,
    long=None,
)
SPEECHES = Lab(
    promise="hostile client",
    file="faults/clients/test_handshake.py",
    cases="speeches that are no handshake",
    smoke=30,
    quick=300,
    long=None,
)
TIMED_CALLS = Lab(
    promise="hostile client",
    file="faults/clients/test_timing.py",
    cases="calls that are timed, of each kind",
    smoke=None,
    quick=2_000,
    long=10_000,
)
_soak = partial(Lab, promise="memory", file="faults/memory/test_soak.py")
SOAK = _soak(cases="seconds of load after the warm-up", smoke=2, quick=12, long=600)
SOAK_WARM_UP = _soak(cases="seconds of load before", smoke=1, quick=16, long=240)
FAILING_FLUSHES = Lab(
    promise="EIO on flush",
    file="faults/flush/test_device_errors.py",
    cases="flushes that fail, by kind of error",
    smoke=None,
    quick=None,
    long=EVERY,
)
FAILING_WRITES = Lab(
    promise="write errors of a device",
    file="faults/flush/test_device_errors.py",
    cases="writes that fail, by kind of error",
    smoke=None,
    quick=None,
    long=EVERY,
)
_index_errors = partial(
    Lab,
    promise="EIO, ENOSPC or a short write in the index",
    file="faults/flush/test_index_errors.py",
)
INDEX_CALLS = _index_errors(cases="calls that fail", smoke=1, quick=4, long=None)
FAILING_INDEX_CALLS = _index_errors(
    cases="calls that fail, by kind of error", smoke=None, quick=None, long=EVERY
)
SMALLER_MAPS = Lab(
    promise="map of the index full",
    file="faults/full/test_full_index.py",
    cases="maps made smaller than what they hold",
    smoke=None,
    quick=None,
    long=1,
)
INDEX_ROOMS = Lab(
    promise="map of the index full",
    file="kvstored/store/index/test_room.py",
    cases="sizes of a map",
    smoke=1,
    quick=3,
    long=3,
)
INDEX_FLIPS = Lab(
    promise="index damaged while nobody served",
    file="faults/index/test_flips.py",
    cases="changed bytes for each kind of stop",
    smoke=5,
    quick=30,
    long=1_000,
)
_lost_index = partial(
    Lab,
    promise="index lost, cut, an older copy, of another set",
    file="faults/index/test_lost_index.py",
)
LOST_INDEXES = _lost_index(cases="kinds of damage and stop", smoke=1, quick=4, long=EVERY)
OLDER_INDEXES = _lost_index(cases="older copies, by kind of stop", smoke=None, quick=2, long=2)
FOREIGN_INDEXES = _lost_index(
    cases="indexes of another set, by kind of stop", smoke=None, quick=1, long=2
)
_fragmentation = partial(
    Lab, promise="slabs and classes waste little", file="kvstored/tiers/test_fragmentation.py"
)
TRAFFIC = _fragmentation(
    cases="runs of random traffic of three classes", smoke=None, quick=2, long=3
)
ENCODED_TRAFFIC = _fragmentation(
    cases="runs of random traffic of encoded chunks", smoke=None, quick=2, long=3
)
RESTORATIONS = Lab(
    promise="whatever is missing, the tokens are the same",
    file="engine_adapters/runner/restore/test_cake_restoration.py",
    cases="examples",
    smoke=20,
    quick=120,
    long=None,
)
_conversation_machine = partial(
    Lab,
    promise="whatever happens to the store, the tokens are the same",
    file="engine_adapters/runner/conversation/test_machine.py",
)
TALK_WALKS = _conversation_machine(
    cases="runs of the state machine of conversations", smoke=8, quick=30, long=1_000
)
TALK_WALK_STEPS = _conversation_machine(
    cases="steps of each of these runs", smoke=40, quick=50, long=100
)
_conversations = partial(
    Lab,
    promise="whatever happens to the store, the tokens are the same",
    file="system/test_conversations.py",
)
TALKS = _conversations(
    cases="conversations with evictions, cuts and kills", smoke=4, quick=8, long=200
)
TALK_TURNS = _conversations(cases="turns of each conversation", smoke=8, quick=16, long=50)
TALK_KILLS = _conversations(cases="kills of engine, daemon or both", smoke=3, quick=6, long=120)
FAILING_USES = Lab(
    promise="whatever happens to the store, the tokens are the same",
    file="system/test_failures.py",
    cases="ways of restoring with and without a codec",
    smoke=2,
    quick=4,
    long=None,
)
_codecs = partial(
    Lab,
    promise="whatever happens to the store, the tokens are the same",
    file="system/test_codecs.py",
)
ENCODED_MODES = _codecs(cases="modes with a codec", smoke=2, quick=6, long=None)
DAMAGED_GAPS = _codecs(cases="sets of damaged chunks", smoke=1, quick=8, long=None)
STORAGE_PARTS = Lab(
    promise="a benchmark measures what it promises",
    file="benchmarks/storage/test_parts.py",
    cases="parts",
    smoke=1,
    quick=EVERY,
    long=None,
)
CAKE_PARTS = Lab(
    promise="a benchmark measures what it promises",
    file="benchmarks/cake/test_measured.py",
    cases="parts that run alone",
    smoke=1,
    quick=None,
    long=None,
)
DECODED_BATCHES = Lab(
    promise="a benchmark measures what it promises",
    file="benchmarks/decode/test_run.py",
    cases="batch sizes",
    smoke=1,
    quick=2,
    long=None,
)
GPU_REHEARSAL = Lab(
    promise="a benchmark measures what it promises",
    file="benchmarks/gpu/test_run.py",
    cases="parts of a rehearsal on CPUs",
    smoke=1,
    quick=3,
    long=None,
)
BOOTED_SERVICES = Lab(
    promise="it runs as a service",
    file="systemd/test_booted.py",
    cases="promises under a systemd that boots",
    smoke=None,
    quick=None,
    long=EVERY,
)
BOOTED_LIMITS = Lab(
    promise="it runs as a service",
    file="systemd/test_limits.py",
    cases="limits of memory and devices that the kernel holds",
    smoke=None,
    quick=None,
    long=EVERY,
)
GPU_BUNDLES = Lab(
    promise="a benchmark measures what it promises",
    file="benchmarks/gpu/bundle/test_bundle.py",
    cases="bundles that run without a network",
    smoke=None,
    quick=None,
    long=1,
)
LATE_COPIES = Lab(
    promise="whatever happens to the store, the tokens are the same",
    file="engine_adapters/vllm/test_engine_modes.py",
    cases="modes of vLLM with copies that come late",
    smoke=None,
    quick=None,
    long=EVERY,
)

LONG_ONLY = {
    "RING_CALL_KILLS_ELSEWHERE",
    "FAILING_FLUSHES",
    "FAILING_WRITES",
    "FAILING_INDEX_CALLS",
    "SMALLER_MAPS",
    "BOOTED_SERVICES",
    "BOOTED_LIMITS",
    "GPU_BUNDLES",
    "LATE_COPIES",
}
"""They try every case of what smaller labs and tests sample, or take what CI has not got."""


def labs() -> dict[str, Lab]:
    """All of them by name, in the order of this file."""
    return {name: value for name, value in globals().items() if isinstance(value, Lab)}
