"""Checks of the example against a sidecar with the sandbox gateway behind it (checks.py sidecar), and of what the SDK makes of
every refusal (checks.py refusals). One line per check; the exit code is 1 if one failed. run.sh starts it."""

import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import stripe

from fence import charge, client, decide, fence

SIDECAR, SANDBOX, REFUSALS, KEY = (os.environ.get(n) for n in ("SIDECAR", "SANDBOX", "REFUSALS", "STRIPE_KEY"))

failed = []


def flaw(body):
    """What is wrong with a check; None if nothing is."""
    try:
        body()
    except Exception as err:
        return f"{type(err).__name__}: {err}".replace("\n", " ")


def report(name, why):
    if why:
        failed.append(name)
        print(f"FAILED  python {name}: {why}", flush=True)
    else:
        print(f"ok      python {name}", flush=True)


def check(name, body):
    report(name, flaw(body))


def same(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what} got {got!r}, want {want!r}")


# Without the proxies of the environment: everything here is on loopback.
web = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url):
    with web.open(url, timeout=30) as answer:
        return json.load(answer)


def rejected(call):
    """The error of a call that must not succeed."""
    try:
        value = call()
    except stripe.StripeError as err:
        return err
    raise AssertionError(f"taken for a success: {value}")


def moved(posts, executed, body):
    """Runs body and returns its result; the gateway must have got and executed this many POSTs meanwhile."""

    def count():
        sends = [s for s in get(f"{SANDBOX}/_sandbox/sends") if s["method"] == "POST"]
        return len(sends), len(get(f"{SANDBOX}/_sandbox/ledger"))

    before = count()
    result = body()
    after = count()
    same((after[0] - before[0], after[1] - before[1]), (posts, executed), "POSTs and executions at the gateway:")
    return result


def fault(name):
    body = json.dumps({"fault": name, "route": "POST /v1/payment_intents"}).encode()
    with web.open(urllib.request.Request(f"{SANDBOX}/_sandbox/faults", body, method="POST"), timeout=30) as answer:
        same(answer.status, 204)


def sidecar():
    sdk = client(KEY, SIDECAR)
    paid = None

    def charges():
        nonlocal paid
        paid = moved(1, 1, lambda: charge(sdk, "python-1", 4990, "pm_card_visa"))
        same((paid.object, paid.status), ("payment_intent", "succeeded"))

    def replay():
        again = moved(0, 0, lambda: charge(sdk, "python-1", 4990, "pm_card_visa"))
        same(again.id, paid.id)
        same(again.last_response.headers["fence-result"], "replayed")

    def conflict():
        err = moved(0, 0, lambda: rejected(lambda: charge(sdk, "python-1", 100, "pm_card_visa")))
        same((err.error.code, decide(err)[0]), ("fence_key-conflict", "stop"))

    def decline():
        for posts in (1, 0):  # the repeat gets the stored no
            err = moved(posts, 0, lambda: rejected(lambda: charge(sdk, "python-2", 4990, "pm_card_chargeDeclined")))
            same((type(err), decide(err)[0]), (stripe.CardError, "declined"))

    def refund():
        params = {"payment_intent": paid.id, "amount": 1000}
        got = moved(1, 1, lambda: sdk.v1.refunds.create(params, fence("refund:order:python-1", undo="none")))
        same((got.object, got.amount), ("refund", 1000))

    def lists():
        same(paid.id in [i.id for i in sdk.v1.payment_intents.list({"limit": 100}).data], True)

    def lost():
        fault("lose-fin")
        intent = charge(sdk, "python-3", 4990, "pm_card_visa")
        same((intent.object, intent.status), ("payment_intent", "succeeded"))
        same(intent.last_response.headers["fence-outcome"], "succeeded")
        again = moved(0, 0, lambda: charge(sdk, "python-3", 4990, "pm_card_visa"))
        same(again.id, intent.id)
        same(len([o for o in get(f"{SANDBOX}/_sandbox/ledger") if o["id"] == intent.id]), 1)

    def once():
        ledger = get(f"{SANDBOX}/_sandbox/ledger")
        keys = [o["idempotency_key"] for o in ledger if o["kind"] == "payment_intents.create" and o["money"]]
        same(len(set(keys)), len(keys))

    def token():
        err = moved(0, 0, lambda: rejected(lambda: charge(sdk, "python-4", 4990, "pm_card_visa", "default:order-4#7")))
        same((err.error.code, decide(err)[0]), ("fence_fenced", "handed-over"))

    def untagged():
        params = {"amount": 1, "currency": "eur"}
        err = moved(0, 0, lambda: rejected(lambda: sdk.v1.payment_intents.create(params)))
        same(err.error.code, "fence_untagged")

    check("charges", charges)
    check("gets the stored answer to a repeat", replay)
    check("is refused another amount under the key", conflict)
    check("sees a decline as a card error", decline)
    check("refunds", refund)
    check("lists", lists)
    check("gets the payment although the answer was lost", lost)
    check("was charged once for each order", once)
    check("is told of a hand-over by a token that is not live", token)
    check("sends nothing without a call key", untagged)


# What the SDK may repeat by itself, and what the application does; the rest is for a person.
REPEATABLE = ["in-flight", "store-unavailable", "instance-lease-lost", "draining"]
NEXT = {
    **dict.fromkeys(["fenced", "scope-finished"], "handed-over"),
    **dict.fromkeys([*REPEATABLE, "in-doubt", "not-sent", "breaker-open", "quarantine", "unreadable"], "repeat"),
}


def refusal(sdk, slug, status, keys):
    for key in keys:
        params = {"amount": 4990, "currency": "eur"}
        err = rejected(lambda: sdk.v1.payment_intents.create(params, fence(key)))
        sent = get(f"{REFUSALS}/_counts")[key]
        if sent < 1 or sent > 1 and slug not in REPEATABLE:
            raise AssertionError(f"{key}: {sent} requests")
        same(err.error.code if err.error else None, f"fence_{slug}", key)
        same(err.http_status, status, key)
        same(err.headers["fence-outcome"], key.split("/")[2], key)
        same(decide(err)[0], NEXT.get(slug, "stop"), key)


def refusals():
    sdk = client(KEY, REFUSALS)
    listed = get(f"{REFUSALS}/_refusals")
    if len(listed) < 25:
        raise SystemExit("the list of refusals is short")
    with ThreadPoolExecutor(len(listed)) as pool:  # the SDK sleeps between its resends
        flaws = pool.map(lambda r: flaw(lambda: refusal(sdk, r["slug"], r["status"], r["keys"])), listed)
        for r, why in zip(listed, flaws):
            report(f"rejects {r['slug']}", why)

    def stray():
        asked = {key for r in listed for key in r["keys"]}
        same([key for key in get(f"{REFUSALS}/_counts") if key not in asked], [])

    check("sends every resend under the same call key", stray)


{"sidecar": sidecar, "refusals": refusals}[sys.argv[1]]()
sys.exit(1 if failed else 0)
