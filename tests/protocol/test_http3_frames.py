"""HTTP/3, frame by frame: where a request ends, what makes its head, and what may be on the other streams (RFC 9114, 4.1, 4.3, 6.2, 7)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lib.servers import free_port
from lib.tls import TlsHayate, connect, context

from .h3 import frame, literally
from .test_http3 import HEAD, MESSAGE_ERROR, client, ports, text
from .test_http3 import place as place

STREAM_CREATION_ERROR, CLOSED_CRITICAL_STREAM, FRAME_UNEXPECTED, FRAME_ERROR, ID_ERROR = 0x103, 0x104, 0x105, 0x106, 0x108
SETTINGS_ERROR, REQUEST_INCOMPLETE = 0x109, 0x10D
QPACK_DECOMPRESSION_FAILED, ENCODER_STREAM_ERROR, DECODER_STREAM_ERROR = 0x200, 0x201, 0x202
DATA, HEADERS, UNKNOWN = 0, 1, 0x21
POST = [(":method", "POST"), *HEAD[1:3], (":path", "/counted.php")]
HINT = "</app.css>; rel=preload; as=style"
SCRIPTS = {
    # Says how much came, and leaves a mark for each run.
    "counted.php": "<?php file_put_contents(__DIR__ . '/runs', 'x', FILE_APPEND); echo strlen(file_get_contents('php://input'));",
    "hints.php": f"<?php hayate_early_hints('{HINT}'); while (!file_exists($_GET['file'])) {{ usleep(1000); clearstatcache(); }} echo 'page';",
}


@pytest.fixture(scope="module")
def hayate(hayate_command, place) -> Iterator[TlsHayate]:
    root = place / "site"
    for name, code in SCRIPTS.items():
        (root / name).write_text(code)
    (root / "runs").touch()
    (root / "runs").chmod(0o666)
    log = place / "marks" / "access.log"
    with TlsHayate(text(place, root, top=f'access_log = "{log}"'), {**ports(), "port": free_port()}, access_log=None) as running:
        running.access = log
        yield running


def runs(place) -> int:
    return (place / "site" / "runs").stat().st_size


@pytest.mark.parametrize(
    ("parts", "body"),
    [
        ([frame(DATA, b"ab"), frame(DATA), frame(DATA, b"cd")], 4),
        ([frame(DATA), frame(DATA), frame(DATA, b"abc")], 3),
        ([frame(UNKNOWN, b"x" * 300), frame(DATA, b"ab"), frame(UNKNOWN), frame(DATA, b"c"), frame(DATA)], 3),
        ([frame(DATA, b"abc"), frame(UNKNOWN, b"x"), literally([("x-after", "1")]), frame(UNKNOWN, b"x")], 3),
        ([literally([("x-after", "1")])], 0),
        ([frame(DATA, b"x" * 70_000), frame(DATA), frame(DATA, b"y" * 70_000)], 140_000),
        ([], 0),
    ],
)
def test_a_body_goes_on_to_the_end_of_its_stream(hayate, place, parts, body) -> None:
    with client(hayate, place) as one:
        whole = one.raw(b"".join([literally(POST), *parts]))
        # In many pieces as well.
        slow = one.raw(literally(POST), end=False)
        for part in parts:
            for at in range(0, len(part), max(len(part) // 3, 1)):
                one.raw(part[at : at + max(len(part) // 3, 1)], stream=slow, end=False)
                one.step(0.01)
        one.raw(b"", stream=slow)
        assert (bytes(one.answer(whole).body), bytes(one.answer(slow).body)) == (str(body).encode(),) * 2


@pytest.mark.parametrize(
    "rest",
    [
        frame(DATA, b"abcd", 10),
        frame(DATA, b"abcd") + b"\x00",
        frame(DATA, b"abcd") + b"\x00\x80\x00",
        frame(DATA, b"abcd") + b"\x40",
        frame(DATA, b"abcd") + frame(UNKNOWN, b"x", 2),
        frame(DATA, b"abcd") + literally([("x-after", "1")])[:-1],
    ],
)
def test_what_ends_within_a_frame_is_not_taken_for_whole(hayate, place, rest) -> None:
    before = runs(place)
    with client(hayate, place) as one:
        one.raw(literally(POST) + rest)
        assert one.ended_for() == FRAME_ERROR
    with client(hayate, place) as one:
        assert one.get().status == 200
    assert runs(place) == before, "PHP ran for a request that was cut"


def test_a_stream_that_ends_before_a_request(hayate, place) -> None:
    with client(hayate, place) as one:
        for begin in (b"", frame(UNKNOWN, b"x")):
            assert one.answer(one.raw(begin)).reset == REQUEST_INCOMPLETE
        assert one.get().status == 200
    with client(hayate, place) as one:
        one.raw(literally(POST)[:-1])
        assert one.ended_for() == FRAME_ERROR


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (frame(DATA, b"x"), FRAME_UNEXPECTED),
        *[(literally(POST) + frame(kind, payload), FRAME_UNEXPECTED) for kind in (2, 3, 4, 5, 6, 7, 8, 9, 13) for payload in (b"", b"\x00")],
        (literally(POST) + literally([("x-after", "1")]) + frame(DATA, b"x"), FRAME_UNEXPECTED),
        (literally(POST) + literally([("x-after", "1")]) * 2, FRAME_UNEXPECTED),
        (frame(HEADERS), QPACK_DECOMPRESSION_FAILED),
        # A dynamic table, which was not offered; an index beyond the static one; a length that is not there.
        (frame(HEADERS, b"\x02\x00\x80"), QPACK_DECOMPRESSION_FAILED),
        (frame(HEADERS, b"\x00\x00\xff\x24"), QPACK_DECOMPRESSION_FAILED),
        (frame(HEADERS, b"\x00\x00\x51\x7f\xff\xff\xff\xff\xff\xff\xff"), QPACK_DECOMPRESSION_FAILED),
        (literally(POST) + frame(HEADERS, b"\x00"), QPACK_DECOMPRESSION_FAILED),
    ],
)
def test_frames_that_may_not_be_there(hayate, place, stream, code) -> None:
    with client(hayate, place) as one:
        one.raw(stream)
        assert one.ended_for() == code
    with client(hayate, place) as one:
        assert one.get().status == 200


@pytest.mark.parametrize(
    "fields",
    [
        [*HEAD, HEAD[0]],
        [*HEAD, HEAD[1]],
        [*HEAD, (":authority", "b.example")],
        [*HEAD, (":path", "/server.php")],
        [*HEAD[:3], ("x", "y"), HEAD[3]],
        [("x", "y"), *HEAD],
        [*HEAD, (":status", "200")],
        [*HEAD, (":protocol", "websocket")],
        [*HEAD, (":", "y")],
        [*HEAD, ("", "y")],
        [*HEAD, ("x", "a\0b")],
        [*HEAD, ("x", "a\r\nx-injected: b")],
        [*HEAD[:3], (":path", "")],
        [*HEAD[:3], (":path", "*")],
        [(":method", "CONNECT"), *HEAD[1:]],
        [(":method", "CONNECT")],
        HEAD[2:],
    ],
)
def test_heads_that_make_no_request(hayate, place, fields) -> None:
    with client(hayate, place) as one:
        assert one.answer(one.raw(literally(fields))).reset == MESSAGE_ERROR
        assert one.get().status == 200


def test_pseudo_headers_in_any_order_and_names_in_huffmans_code(hayate, place) -> None:
    with client(hayate, place) as one:
        assert one.answer(one.raw(literally([HEAD[3], HEAD[0], HEAD[2], HEAD[1]]))).body == b"ok x"
        # ":path" twice, once by its number and once in Huffman's code.
        import pylsqpack

        _, section = pylsqpack.Encoder().encode(0, [(name.encode(), value.encode()) for name, value in HEAD])
        coded = b"\x2c\xb9\x58\x74\x9f\x01/"
        assert one.answer(one.raw(frame(HEADERS, section))).status == 200
        assert one.answer(one.raw(frame(HEADERS, section + coded))).reset == MESSAGE_ERROR


@pytest.mark.parametrize(
    "trailers",
    [
        [(":path", "/")],
        [(":status", "200")],
        [("X-Upper", "y")],
        [("x", "a\nb")],
        [("transfer-encoding", "chunked")],
        [("connection", "x")],
    ],
)
def test_trailers_that_may_not_be(hayate, place, trailers) -> None:
    before = runs(place)
    with client(hayate, place) as one:
        assert one.answer(one.raw(literally(POST) + frame(DATA, b"x") + literally(trailers))).reset == MESSAGE_ERROR
        assert one.get().status == 200
    assert runs(place) == before


def test_after_trailers_the_end_is_waited_for(hayate, place) -> None:
    before = runs(place)
    with client(hayate, place) as one:
        stream = one.raw(literally(POST) + frame(DATA, b"abc") + literally([("x-after", "1")]), end=False)
        # The server has it before this one.
        assert one.get().status == 200
        assert runs(place) == before and not one.over(stream)
        one.raw(b"", stream=stream)
        assert one.answer(stream).body == b"3"


TARGETS = ["/server.php?a=1", '/server.php?a=<b>"c"`{|}\\^[]', '/server.php/x<y>"z"`?q', "/server.php?latin=\xe9&utf8=\xc3\xa9", "/server.php/\xe9\xff", "/server.php?"]


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_those_of_http_1(hayate, place, target) -> None:
    def seen(server: dict) -> list:
        return [server.get(key) for key in ("REQUEST_URI", "QUERY_STRING", "SCRIPT_NAME", "PATH_INFO", "DOCUMENT_URI")]

    with client(hayate, place) as one:
        answer = one.answer(one.raw(literally([*HEAD[:3], (":path", target)])))
    with connect(hayate.ports["tls"], "a.example", context(place / "one.pem")) as tls:
        tls.sendall(b"GET " + target.encode("latin-1") + b" HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        body = b"".join(iter(lambda: tls.recv(65536), b"")).partition(b"\r\n\r\n")[2]
    if not answer.body:
        # What is no UTF-8 is none in JSON, for both.
        assert answer.status == 200 and (b"\r\n0\r\n" in body or not body or body == b"0\r\n\r\n")
        return
    over_tcp = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])
    assert seen(json.loads(bytes(answer.body))) == seen(over_tcp)


@pytest.mark.parametrize("target", ["/ok.php?a=b#c", "/ok.php#", "/ok.php?a b", "/ok.php\t"])
def test_targets_that_are_none(hayate, place, target) -> None:
    with client(hayate, place) as one:
        answer = one.answer(one.raw(literally([*HEAD[:3], (":path", target)])))
        assert answer.reset == MESSAGE_ERROR or answer.status == 400, answer


def test_what_is_refused_is_answered_and_in_the_access_log(hayate, place) -> None:
    with client(hayate, place) as one:
        answer = one.answer(one.raw(literally([*HEAD, ("x", "y" * 40_000)])))
        assert answer.status == 431 and b"431" in answer.body
        # One that says from the start that it is far too large.
        answer = one.answer(one.raw(frame(HEADERS, b"\x00\x00", 1 << 20), end=False))
        assert answer.status == 431
    log = hayate.access
    with client(hayate, place) as one:
        one.wait(lambda: one.get().status == 200 and log.read_text().count(" 431 ") == 2)


def control(settings: bytes = frame(4)) -> bytes:
    return b"\x00" + settings


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (frame(4), FRAME_UNEXPECTED),
        (frame(DATA, b"x"), FRAME_UNEXPECTED),
        (frame(HEADERS, b"\x00\x00"), FRAME_UNEXPECTED),
        (frame(5, b"\x00"), FRAME_UNEXPECTED),
        (frame(8, b"\x00"), FRAME_UNEXPECTED),
        (frame(7), FRAME_ERROR),
        (frame(7, b"\x00\x00"), FRAME_ERROR),
        (frame(13, b"\x04") + frame(13, b"\x00"), ID_ERROR),
        (frame(7, b"\x00") + frame(7, b"\x04"), ID_ERROR),
        (frame(3, b"\x00"), ID_ERROR),
    ],
)
def test_what_may_not_be_on_the_control_stream(hayate, place, said, code) -> None:
    with client(hayate, place) as one:
        assert one.h3 and one.h3._local_control_stream_id is not None
        held = one.begin("/sleep.php?ms=2000")
        one.raw(said, stream=one.h3._local_control_stream_id, end=False)
        assert one.ended_for() == code and not one.answers[held].ended
    with client(hayate, place) as one:
        assert one.get().status == 200


@pytest.mark.parametrize("which", ["control", "encoder", "decoder"])
@pytest.mark.parametrize("how", ["fin", "reset"])
def test_streams_that_must_not_end(hayate, place, which, how) -> None:
    with client(hayate, place) as one:
        assert one.h3
        number = {"control": one.h3._local_control_stream_id, "encoder": one.h3._local_encoder_stream_id, "decoder": one.h3._local_decoder_stream_id}[which]
        assert number is not None
        # The server knows what they are by now.
        assert one.get().status == 200
        if how == "fin":
            one.raw(b"", stream=number)
        else:
            one.quic.reset_stream(number, 0x100)
            one.flush()
        assert one.ended_for() == CLOSED_CRITICAL_STREAM
    with client(hayate, place) as one:
        assert one.get().status == 200


@pytest.mark.parametrize(
    ("said", "code"),
    [
        # A second one of each, and a push, which is the server's.
        (control(), STREAM_CREATION_ERROR),
        (b"\x02", STREAM_CREATION_ERROR),
        (b"\x03", STREAM_CREATION_ERROR),
        (b"\x01\x00", STREAM_CREATION_ERROR),
    ],
)
def test_streams_that_may_not_be_opened(hayate, place, said, code) -> None:
    with client(hayate, place) as one:
        assert one.get().status == 200
        one.raw(said, stream=one.quic.get_next_available_stream_id(is_unidirectional=True), end=False)
        assert one.ended_for() == code


@pytest.mark.parametrize(("stream", "said", "code"), [("encoder", b"\x3f\x01", ENCODER_STREAM_ERROR), ("encoder", b"\x41x\x01y", ENCODER_STREAM_ERROR), ("decoder", b"\x80", DECODER_STREAM_ERROR), ("decoder", b"\x01", DECODER_STREAM_ERROR)])
def test_there_is_no_dynamic_table(hayate, place, stream, said, code) -> None:
    with client(hayate, place) as one:
        assert one.h3
        number = one.h3._local_encoder_stream_id if stream == "encoder" else one.h3._local_decoder_stream_id
        # What is allowed there: a capacity of nothing, and streams that are given up.
        one.raw(b"\x20" if stream == "encoder" else b"\x44\x7f\x80\x01", stream=number, end=False)
        assert one.get().status == 200
        one.raw(said, stream=number, end=False)
        assert one.ended_for() == code


@pytest.mark.parametrize(
    ("settings", "code"),
    [(frame(4, b"\x04\x00"), SETTINGS_ERROR), (frame(4, b"\x06\x40"), FRAME_ERROR), (frame(4, b"\x21\x00\x21\x00"), SETTINGS_ERROR), (frame(7, b"\x00"), 0x10A)],
)
def test_settings_that_are_none(hayate, place, monkeypatch, settings, code) -> None:
    from aioquic.h3 import connection

    monkeypatch.setattr(connection, "encode_frame", lambda *_: settings)
    one = client(hayate, place)
    one.wait(lambda: one.h3 is not None)
    assert one.ended_for() == code
    one.__exit__()


def test_a_client_that_takes_small_heads_only(hayate, place, monkeypatch) -> None:
    from aioquic.h3 import connection

    with monkeypatch.context() as patch:
        # SETTINGS_MAX_FIELD_SECTION_SIZE of 100.
        real = connection.encode_frame
        patch.setattr(connection, "encode_frame", lambda kind, data: frame(4, b"\x06\x40\x64") if kind == 4 else real(kind, data))
        one = client(hayate, place)
        one.wait(lambda: one.h3 is not None)
    with one:
        stream = one.raw(literally(HEAD))
        # Nothing that it does not take; the stream ends.
        assert one.answer(stream).reset is not None and not one.answers[stream].headers


def test_early_hints(hayate, place) -> None:
    """They come while the script still waits, in order, and are no trailers of anything."""
    go = place / "marks" / "hints-go"
    with client(hayate, place) as one:
        stream = one.begin(f"/hints.php?file={go}")
        one.wait(lambda: one.answers[stream].informational)
        said = one.answers[stream]
        assert not said.headers and [(hint[":status"], hint["link"]) for hint in said.informational] == [("103", HINT)]
        go.touch()
        answer = one.answer(stream)
        assert (answer.status, bytes(answer.body), len(answer.informational), answer.trailers) == (200, b"page", 1, {})
        assert "link" not in answer.headers
    go.unlink()


def test_garbage_on_streams(hayate, place) -> None:
    """Whatever it is, it costs its connection at most."""
    import random

    seed = random.Random(11)
    good = literally(POST) + frame(DATA, b"abc") + frame(UNKNOWN, b"x") + literally([("x-after", "1")])
    for _ in range(40):
        with client(hayate, place) as one:
            for _ in range(20):
                if one.terminated is not None:
                    break
                data = bytearray(good)
                for _ in range(seed.randrange(1, 6)):
                    data[seed.randrange(len(data))] = seed.randrange(256)
                one.raw(bytes(data[: seed.randrange(1, len(data) + 1)]), end=bool(seed.randrange(2)))
                one.step(0.001)
    with client(hayate, place) as one:
        assert one.get().status == 200
