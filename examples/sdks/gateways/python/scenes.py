"""What each gateway goes through behind the sidecar, driven by its own SDK, and how it is counted at the sandbox gateway. run.sh
starts the scripts that use this: one line per check, exit code 1 if one failed.

  scenes     the eight scenarios through a sidecar (SIDECAR) in front of the sandbox (SANDBOX)
  refusals   every refusal of the sidecar (REFUSALS): an error for the SDK, and never sent again by it
  unfenced   straight to the sandbox, repeated as if it were another call: the count must notice that two were executed
  broken     through a sidecar, but the gateway does not keep its word and ignores keys: the count must notice that too
"""

import json
import os
import sys
import time
import urllib.request
from dataclasses import dataclass
from urllib.parse import quote

SIDECAR, SANDBOX, REFUSALS, HOOK, HOOK_SECRET = (
    os.environ.get(n, "") for n in ("SIDECAR", "SANDBOX", "REFUSALS", "HOOK", "HOOK_SECRET"))
KEY = os.environ["CREDENTIAL"]

PATIENCE = 60  # seconds that bound every wait

# Refusals after which the same call is asked for again under the same key; the rest is for a person. The first four an SDK may
# repeat by itself.
REPEATABLE = ["in-flight", "store-unavailable", "instance-lease-lost", "draining"]
AGAIN = [*REPEATABLE, "in-doubt", "not-sent", "breaker-open", "quarantine", "unreadable"]


@dataclass
class Paid:
    """What an SDK returned: the gateway's id, and paid, pending or declined."""

    id: str
    state: str
    money: str = ""  # the id of what moved the money, where it is another one

    def __post_init__(self):
        self.money = self.money or self.id


class App:
    """One gateway's SDK as an application uses it. address is the sidecar's port for the gateway; token is for gateways whose
    SDK would else fetch one there."""

    gateway = ""
    errors: tuple = ()  # what the SDK raises on an answer that is none, and where no answer came
    asks = True  # a repeat under the same key is how a doubt is settled
    stored = False  # a 500 after the charge stands under the key and nothing else tells: the call stays in doubt
    shows = True  # an object can be read by its id
    hooked = False  # the gateway's notice tells where a pending payment's money is; else the sidecar asks
    steps = 1  # in which a pending payment's money arrives
    states = {"decline": "declined", "slow": "pending"}
    final = True  # a decline is the call's outcome; else the call may be asked for again, and is sent

    def __init__(self, address, token=""):
        raise NotImplementedError

    def pay(self, amount, headers, how=""):
        """Pays amount (in minor units); how is "", decline or slow. Returns a Paid or raises one of errors."""
        raise NotImplementedError

    def show(self, paid):
        """Reads an object again."""
        raise NotImplementedError

    def code(self, err):
        """The gateway's own error code in an error, which is fence_<slug> in a refusal of the sidecar; None without one."""
        raise NotImplementedError

    def status(self, err):
        """The HTTP status of an error; None if no answer came, or if the SDK keeps it to itself."""
        raise NotImplementedError

    def declines(self, err):
        """Whether an error is the gateway's no."""
        return False


# Without the proxies of the environment: everything here is on loopback.
web = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url):
    with web.open(url, timeout=30) as answer:
        return json.load(answer)


def control(method, path, body=None):
    data = json.dumps(body).encode() if body is not None else None
    with web.open(urllib.request.Request(f"{SANDBOX}/_sandbox/{path}", data, method=method), timeout=30) as answer:
        same(answer.status, 204, path)


def same(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what} got {got!r}, want {want!r}".strip())


def eventually(what, holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.1)


def executed(amount):
    """The operations on an order's money that the gateway carried out. Every order here has an amount of its own."""
    return [o for o in get(f"{SANDBOX}/_sandbox/ledger") if o["money"] and o["amount"] == amount]


def at_most_once(amount):
    rows = executed(amount)
    if len(rows) > 1:
        raise AssertionError(f"executed {len(rows)} times, under {len({o['idempotency_key'] for o in rows})} keys")
    return rows


def record(call):
    """The sidecar's record of a call, which has the key that the gateway was given."""
    return get(f"{SIDECAR}/.well-known/fence-sidecar/calls?key={quote(call, safe='')}")["call"]


def sends(call):
    """The POSTs with the call's key that reached the gateway's socket."""
    key = record(call)["gatewayKey"]
    return len([s for s in get(f"{SANDBOX}/_sandbox/sends") if s["method"] == "POST" and s["idempotency_key"] == key])


class Order:
    """One order: its amount and the headers of its call. Every request of it carries them."""

    count = 0

    def __init__(self, app, name, fault="", how=""):
        Order.count += 1
        self.app, self.how, self.call = app, how, f"{app.gateway}/python/{name}"
        self.amount = 5000 + 100 * Order.count + (5 if how == "decline" else 0)
        self.headers = {"Fence-Key": self.call}
        if fault:
            self.headers["Sandbox-Fault"] = fault

    def pay(self):
        return self.app.pay(self.amount, self.headers, self.how)

    def error(self):
        """The error of a call that must not succeed."""
        try:
            value = self.pay()
        except self.app.errors as err:
            return err
        raise AssertionError(f"taken for a success: {value}")

    def slug(self, err):
        code = self.app.code(err) or ""
        return code.removeprefix("fence_") if code.startswith("fence_") else ""

    def repeats(self, err):
        """Whether an application asks again under the same key: nothing is known, or nothing was tried."""
        if self.slug(err):
            return self.slug(err) in AGAIN
        status = self.app.status(err)
        return status is None or status >= 500

    def insist(self):
        """Pays until the outcome is known."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.pay()
            except self.app.errors as err:
                if not self.repeats(err) or time.monotonic() > until:
                    raise
            time.sleep(0.3)

    def doubtful(self):
        """Asks several times for what cannot be found out: each answer must be an error that settles nothing."""
        for _ in range(3):
            err = self.error()
            if not self.repeats(err) and self.slug(err) != "needs-review":
                raise AssertionError(f"settled by {err!r}")
            time.sleep(0.3)

    def counted(self, got=None, times=1, posts=None):
        """Fails unless the gateway carried this call out so many times, under its key, as what the SDK got, by so many requests."""
        rows = at_most_once(self.amount)
        same(len(rows), times, "executions:")
        for row in rows:
            same(row["idempotency_key"], record(self.call)["gatewayKey"], "the key:")
            if got:
                same(row["id"], got.money, "the gateway's id:")
        if posts is not None:
            same(sends(self.call), posts, "sends:")


def paid(app, got, how=""):
    same(got.state, app.states.get(how or "ok", "paid"), "state:")
    same(bool(got.id), True, "an id:")


def success(app):
    order = Order(app, "success")
    first = order.pay()
    paid(app, first)
    same(order.pay(), first, "the repeat:")
    order.counted(first, posts=1)


def decline(app):
    order = Order(app, "decline", how="decline")
    for _ in range(2):
        if "decline" in app.states:
            paid(app, order.pay(), "decline")
        else:
            err = order.error()
            same(app.declines(err), True, f"{err!r} is a decline:")
    order.counted(times=0, posts=1 if app.final else 2)


def lost(app):
    order = Order(app, "lost", fault="lose-rst;times=1")
    got = order.insist()
    paid(app, got)
    same(order.pay(), got, "the repeat:")
    order.counted(got)


def dropped(app):
    order = Order(app, "dropped", fault="drop;times=1")
    if app.asks:
        got = order.insist()
        paid(app, got)
        order.counted(got)
    else:
        order.doubtful()
        order.counted(times=0, posts=1)


def failed(app):
    order = Order(app, "failed", fault="error-after;times=1")
    if app.stored:
        order.doubtful()
        order.counted()
    else:
        got = order.insist()
        paid(app, got)
        order.counted(got)


def stale(app):
    for fault in ("list-lag", "search-lag"):
        control("POST", "faults", {"fault": fault, "arg": "3s"})
    try:
        order = Order(app, "stale", fault="lose-fin;times=1")
        got = order.insist()
        paid(app, got)
        order.counted(got, posts=None if app.asks else 1)
    finally:
        control("DELETE", "faults")


def late(app):
    order = Order(app, "late", fault="delay=5s;times=1")
    err = order.error()
    same(order.repeats(err), True, f"{err!r} leaves the call open:")
    eventually("the gateway executed it after all", lambda: executed(order.amount))
    got = order.insist()
    paid(app, got)
    order.counted(got)


def pending(app):
    if app.hooked:
        control("POST", "webhooks", {"url": HOOK, "secret": HOOK_SECRET})
    order = Order(app, "pending", how="slow")
    got = order.pay()
    paid(app, got, "slow")
    same(record(order.call)["payment"], "pending", "the record's payment:")
    for _ in range(app.steps):
        control("POST", f"payments/{got.money}/done")
    if app.shows:
        same(app.show(got).state, "paid", "state once it is through:")
    eventually("the money is known to have arrived", lambda: record(order.call).get("payment") == "done")
    same(order.pay().id, got.id, "the repeat's id:")
    order.counted(got, posts=1)


SCENES = {
    "success": success,
    "decline": decline,
    "answer lost after the charge": lost,
    "dropped unread": dropped,
    "500 after the charge": failed,
    "stale search": stale,
    "late execution after our deadline": late,
    "pending, then done": pending,
}

bad = []


def check(app, name, body):
    try:
        body()
        print(f"ok      {app.gateway} python {name}", flush=True)
    except Exception as err:
        bad.append(name)
        why = f"{type(err).__name__}: {err}".replace("\n", " ")
        print(f"FAILED  {app.gateway} python {name}: {why}", flush=True)


def scenes(kind):
    app = kind(SIDECAR)
    for name, play in SCENES.items():
        check(app, name, lambda: play(app))


def refusal(app, slug, status, keys):
    for key in keys:
        order = Order(app, "refused")
        order.headers = {"Fence-Key": key}
        err = order.error()
        same(app.code(err), f"fence_{slug}", key)
        if app.status(err) is not None:
            same(app.status(err), status, key)
        sent = get(f"{REFUSALS}/_counts")[key]
        if sent < 1 or sent > 1 and slug not in REPEATABLE:
            raise AssertionError(f"{key}: {sent} requests")


def refusals(kind):
    app = kind(REFUSALS, token="example")
    listed = get(f"{REFUSALS}/_refusals")
    if len(listed) < 25:
        raise SystemExit("the list of refusals is short")
    for r in listed:
        check(app, f"rejects {r['slug']}", lambda: refusal(app, r["slug"], r["status"], r["keys"]))
    asked = {key for r in listed for key in r["keys"]}
    check(app, "sends nothing else", lambda: same([k for k in get(f"{REFUSALS}/_counts") if k not in asked], []))


def unfenced(kind):
    app = kind(SANDBOX)

    def twice():
        order = Order(app, "lost")
        order.headers = {"Sandbox-Fault": "lose-rst"}
        same(order.repeats(order.error()), True, "no answer came:")
        order.headers = {}
        paid(app, order.pay())  # under another key, or none
        at_most_once(order.amount)

    check(app, "answer lost after the charge", twice)


def broken(kind):
    app = kind(SIDECAR)
    control("POST", "faults", {"fault": "ignore-key"})
    check(app, "answer lost after the charge", lambda: lost(app))


def main(kind):
    {"scenes": scenes, "refusals": refusals, "unfenced": unfenced, "broken": broken}[sys.argv[1]](kind)
    sys.exit(1 if bad else 0)
