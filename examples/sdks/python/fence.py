"""How an application calls Stripe through the sidecar with the official SDK: another host and port, one header per call, and
one decision per error."""

import time

import stripe


def client(api_key, sidecar):
    """The SDK, pointed at the sidecar's port for Stripe (http://127.0.0.1:8100).

    The API key stays the application's; the SDK's retries may be on. The timeout is longer than the sidecar's
    attemptTimeout and wait together: a client that hangs up earlier loses nothing, since the call goes on and a repeat gets
    its answer.
    """
    return stripe.StripeClient(
        api_key,
        base_addresses={"api": sidecar},
        max_network_retries=2,
        http_client=stripe.RequestsClient(timeout=150),
    )


def fence(key, token=None, undo=None):
    """The options of one fenced call.

    The key names what is to happen once, so it is made of the application's own identifiers, never at random: a repeat after
    a crash must find the same one. The token is what the lease API gave (without it, the call has no hand-over protection).
    undo="none" says that a refund or a cancellation compensates no call.
    """
    headers = {"Fence-Key": key}
    if token:
        headers["Fence-Token"] = token
    if undo:
        headers["Fence-Undo"] = undo
    return {"headers": headers}


def decide(err):
    """What to do about a stripe.StripeError, and how many seconds to wait before a repeat.

    repeat       the very same call under the same key, later: it is not known whether money moved, or nothing could be tried
    declined     the gateway's no, and the only error on which anything is undone
    handed-over  somebody else works on this now: stop, undo nothing, repeat nothing
    stop         tell a person: repeating does not help, and whether money moved is in the problem's text
    """
    headers = err.headers or {}
    after = headers.get("retry-after", "")
    after = max(1, int(after)) if after.isdigit() else 1
    if err.http_status is None:
        return "repeat", after  # no answer came: the call may have been carried out
    code = (err.error.code if err.error else None) or ""
    if code.startswith("fence_"):
        slug = code[len("fence_"):]
        if slug in ("fenced", "scope-finished"):
            return "handed-over", 0
        if slug == "in-flight" or err.http_status >= 500:
            return "repeat", after
        return "stop", 0
    outcome = headers.get("fence-outcome")
    if outcome == "declined":
        return "declined", 0
    if outcome == "unknown":
        return "repeat", after  # the gateway's own 5xx: what became of the call is not found out yet
    if outcome == "not-executed" and err.http_status == 429:
        return "repeat", after
    return "stop", 0


def charge(sdk, order, amount, card, token=None, patience=300):
    """Takes amount (in minor units) for an order until the answer is known or the patience (seconds) has ended.

    Then the error that asked for a repeat is raised: that is no failure. The order stays open, and a later charge of it goes
    on.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return sdk.v1.payment_intents.create(
                {"amount": amount, "currency": "eur", "confirm": True, "payment_method": card},
                fence(f"charge:order:{order}", token),
            )
        except stripe.StripeError as err:
            what, after = decide(err)
            if what != "repeat" or time.monotonic() + after > until:
                raise
        time.sleep(after)
