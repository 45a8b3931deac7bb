"""The bytes of a webhook and what signs them: a receiver can compute both."""

import hashlib
import hmac

from automation_pipeline.core.webhooks import body_of, mac_of, mac_of_moment


def test_a_body_is_the_same_bytes_in_whatever_order_its_keys_come() -> None:
    assert (
        body_of({"b": "é", "a": [1]})
        == body_of({"a": [1], "b": "é"})
        == '{"a":[1],"b":"é"}'.encode()
    )


def test_a_receiver_can_check_what_is_signed() -> None:
    body = b'{"a":1}'
    assert mac_of("s3cret", body) == hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert (
        mac_of_moment("s3cret", body, "17")
        == hmac.new(b"s3cret", b"17." + body, hashlib.sha256).hexdigest()
    )
    assert mac_of_moment("s3cret", body, "17") != mac_of_moment("s3cret", body, "18")
