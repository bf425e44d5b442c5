"""An application under check: does what its standard input says, one line each, and answers each with one line. It takes the
keeper's class from the command line: keeper.Keeper or watcher.Watcher."""

import http.client
import importlib
import os
import sys
from urllib.parse import urlsplit

from keeper import Refused

LEASES, PAY = (urlsplit(os.environ[name]).netloc for name in ("LEASES", "PAY"))
module, cls = sys.argv[1].split(".")
Keeper = getattr(importlib.import_module(module), cls)
told = []
keeper = None


def acquire(scope):
    global keeper
    told.clear()
    keeper = Keeper(scope, address=LEASES, on_lost=lambda: told.append(1), holder="python")
    return keeper.token()


def charge(key, amount):
    connection = http.client.HTTPConnection(PAY, timeout=60)
    connection.request("POST", "/v1/payment_intents", f"amount={amount}&currency=eur&confirm=true&payment_method=pm_card_visa", {
        "Authorization": "Bearer " + os.environ["STRIPE_KEY"], "Content-Type": "application/x-www-form-urlencoded",
        "Fence-Key": key, "Fence-Token": keeper.token(),
    })
    answer = connection.getresponse()
    text = answer.read().decode()
    return f"{answer.status} {answer.getheader('Fence-Lease')} {'fenced' if '/problems/fenced' in text else ''}".strip()


def do(what, *args):
    if what in ("acquire", "charge"):
        return globals()[what](*args)
    if what in ("release", "finish"):
        getattr(keeper, what)()
        return "done"
    facts = {"held": keeper.held(), "lost": keeper.lost.is_set() and len(told) == 1, "cancelled": keeper.cancelled}
    return str(facts[what]).lower()


for line in sys.stdin:
    try:
        print(do(*line.split()), flush=True)
    except Refused as err:
        print("refused", err.slug, flush=True)
    except Exception as err:
        print("error", repr(err).replace("\n", " "), flush=True)
